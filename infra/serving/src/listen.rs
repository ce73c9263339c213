//! The addresses of one process.

use std::net::SocketAddr;
use tallystone_model::ConfigError;

/// Where a process serves; part of the section of each service.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    /// gRPC and HTTP.
    pub listen: SocketAddr,
    /// Prometheus `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
}

impl Listen {
    /// Checks that both addresses can be bound together. `section` names them in the error.
    pub fn check(&self, section: &str) -> Result<(), ConfigError> {
        match self.metrics_listen {
            Some(metrics) if metrics == self.listen && metrics.port() != 0 => Err(ConfigError::new(
                format!("{section}.metrics_listen"),
                format!("is {metrics}, which is also the address of gRPC; choose another port"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_addresses_must_differ_unless_the_port_is_free_to_choose() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let check = |listen, metrics| {
            Listen { listen: address(listen), metrics_listen: Some(address(metrics)) }.check("server")
        };
        assert_eq!(check(7600, 7600).unwrap_err().field, "server.metrics_listen");
        assert_eq!((check(7600, 7602), check(0, 0)), (Ok(()), Ok(())));
    }
}
