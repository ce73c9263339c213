//! How the nodes of a store are reached, wherever they are. Their password and certificates are files that are read for each connection:
//! both can be replaced while the process runs.

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsCertificates,
};
use std::path::{Path, PathBuf};

/// How the nodes are reached, but for their addresses.
#[derive(Clone)]
pub(crate) struct NodeAccess {
    pub(crate) info: ConnectionInfo,
    /// The ACL user; `None`: that of `info`.
    pub(crate) user: Option<String>,
    /// The file with the password, behind the key that names it; `None`: the password is that of `info`.
    pub(crate) password_file: Option<(&'static str, PathBuf)>,
    /// `None`: the connections have no TLS.
    pub(crate) tls: Option<TlsFiles>,
}

/// The files of connections with TLS, PEM.
#[derive(Clone)]
pub(crate) struct TlsFiles {
    /// `None`: the CAs that the system trusts.
    pub(crate) ca_file: Option<PathBuf>,
    /// The certificate to show, and its private key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// A file that cannot be read.
pub(crate) struct FileFault {
    /// The key that names it.
    pub(crate) key: &'static str,
    pub(crate) why: String,
}

/// What the files have now.
struct Secrets {
    password: Option<String>,
    certificates: Option<TlsCertificates>,
}

impl NodeAccess {
    /// The client of one node. `address`: `None`, that of `info`.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub(crate) fn client(&self, address: Option<ConnectionAddr>) -> RedisResult<Client> {
        let unusable = |FileFault { key, why }| {
            let what = "a file of the connection cannot be read";
            RedisError::from((ErrorKind::InvalidClientConfig, what, format!("{key}: {why}")))
        };
        let Secrets { password, certificates } = self.secrets().map_err(unusable)?;
        let info = match address {
            Some(address) => self.info.clone().set_addr(address),
            None => self.info.clone(),
        };
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let info = info.set_redis_settings(settings);
        match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        }
    }

    /// Reads the files once.
    ///
    /// # Errors
    /// One cannot be read.
    pub(crate) fn check_files(&self) -> Result<(), FileFault> {
        self.secrets().map(drop)
    }

    fn secrets(&self) -> Result<Secrets, FileFault> {
        let password = self.password_file.as_ref().map(|(key, path)| {
            let password = read(key, path)?;
            Ok(String::from_utf8_lossy(&password).trim_end_matches(['\r', '\n']).to_owned())
        });
        let certificates = self.tls.as_ref().map(TlsFiles::read);
        Ok(Secrets { password: password.transpose()?, certificates: certificates.transpose()? })
    }

    /// The same, at another address.
    pub(crate) fn at(&self, host: String, port: u16) -> NodeAccess {
        NodeAccess { info: self.info.clone().set_addr(self.address(host, port)), ..self.clone() }
    }

    pub(crate) fn address(&self, host: String, port: u16) -> ConnectionAddr {
        match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        }
    }
}

impl TlsFiles {
    fn read(&self) -> Result<TlsCertificates, FileFault> {
        let client_tls = match &self.certificate {
            Some((certificate, key)) => {
                let (client_cert, client_key) = (read("cert_file", certificate)?, read("key_file", key)?);
                Some(ClientTlsConfig { client_cert, client_key })
            }
            None => None,
        };
        let root_cert = self.ca_file.as_deref().map(|path| read("ca_file", path)).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, FileFault> {
    std::fs::read(path).map_err(|error| FileFault { key, why: format!("{}: {error}", path.display()) })
}
