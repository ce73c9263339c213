//! The modules of a crate and the files that each of them uses, read from the source text.
//!
//! The reader knows as much Rust as it needs: it splits a file into tokens, follows `mod`, and resolves each path to
//! the file that defines its item, through imports and re-exports. It ignores code under `#[cfg(test)]`.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One `use` of a module: it binds `name` to `path`.
struct Import {
    /// `*` for a glob.
    name: String,
    path: Vec<String>,
    /// `pub use`: other modules may reach the item through this one.
    reexport: bool,
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// The paths in its code, `use` declarations excepted.
    paths: BTreeSet<Vec<String>>,
}

/// What a path resolves to.
enum Target {
    Module(usize),
    /// An item that this file defines.
    File(usize),
    OtherCrate,
}

/// All modules of one crate, its root first.
#[derive(Default)]
pub(super) struct Modules {
    modules: Vec<Module>,
    files: Vec<PathBuf>,
}

impl Modules {
    /// Reads a crate from its root file.
    pub(super) fn read(root: &Path) -> Modules {
        let mut modules = Modules::default();
        let folder = root.parent().expect("a file lies in a folder").to_owned();
        modules.read_file(root, &folder, None);
        modules
    }

    /// Its files; the numbers of `edges` are places in this list.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// For each file, the other files whose items it uses.
    pub(super) fn edges(&self) -> Vec<BTreeSet<usize>> {
        let mut edges = vec![BTreeSet::new(); self.files.len()];
        for (index, module) in self.modules.iter().enumerate() {
            let imported = module.imports.iter().filter(|import| !import.reexport).map(|import| &import.path);
            let named = module.paths.iter().filter(|path| path.len() > 1 || self.is_reexported(module, &path[0]));
            for path in imported.chain(named) {
                if let Some(Target::File(file)) = self.resolve(index, path, &mut BTreeSet::new())
                    && file != module.file
                {
                    edges[module.file].insert(file);
                }
            }
        }
        edges
    }

    fn is_reexported(&self, module: &Module, name: &str) -> bool {
        module.imports.iter().any(|import| import.reexport && import.name == name)
    }

    /// Reads one file as a module. `folder` is where its child modules lie.
    fn read_file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.files.push(path.to_owned());
        let file = self.files.len() - 1;
        self.read_module(tokens, file, folder, parent)
    }

    fn read_module(&mut self, tokens: TokenStream, file: usize, folder: &Path, parent: Option<usize>) -> usize {
        let index = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        while !rest.is_empty() {
            let (item, after) = split_item(rest);
            rest = after;
            self.read_item(index, item, folder);
        }
        index
    }

    fn read_item(&mut self, index: usize, item: Item<'_>, folder: &Path) {
        if item.is_test {
            return;
        }
        let keyword = item.tokens.first().map(ToString::to_string).unwrap_or_default();
        match (keyword.as_str(), item.tokens) {
            ("use", [_, tree @ ..]) => {
                use_tree(tree, &mut Vec::new(), item.is_public, &mut self.modules[index].imports);
            }
            ("mod", [_, name, TokenTree::Group(body), ..]) => {
                let name = name.to_string();
                let file = self.modules[index].file;
                let child = self.read_module(body.stream(), file, &folder.join(&name), Some(index));
                self.modules[index].children.insert(name, child);
            }
            ("mod", [_, name, ..]) => {
                let name = name.to_string();
                let file = folder.join(format!("{name}.rs"));
                let path = if file.exists() { file } else { folder.join(&name).join("mod.rs") };
                let child = self.read_file(&path, &folder.join(&name), Some(index));
                self.modules[index].children.insert(name, child);
            }
            (_, tokens) => {
                self.modules[index].items.extend(defined_name(tokens));
                let module = &mut self.modules[index];
                let tokens = without_tests(tokens.iter().cloned().collect());
                paths_of(&tokens, &mut module.paths, &mut module.imports);
            }
        }
    }

    /// The file that defines what `path` names in a module, or the module that it names. `tried` ends circles of
    /// imports: names that are being looked up.
    fn resolve(&self, module: usize, path: &[String], tried: &mut BTreeSet<(usize, String)>) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        match first.as_str() {
            "crate" => return self.resolve_in(0, rest, tried),
            "self" => return self.resolve_in(module, rest, tried),
            "super" => return self.resolve_in(self.modules[module].parent?, rest, tried),
            _ => {}
        }
        match (self.lookup(module, first, tried)?, rest) {
            (target, []) => Some(target),
            (Target::Module(child), rest) => self.resolve_in(child, rest, tried),
            // An associated item, a variant, or an item of another crate.
            (target, _) => Some(target),
        }
    }

    /// Like `resolve`, after a prefix that names a module: what is not found there belongs to the module's file.
    fn resolve_in(&self, module: usize, path: &[String], tried: &mut BTreeSet<(usize, String)>) -> Option<Target> {
        let file = Target::File(self.modules[module].file);
        match path.first() {
            Some(name) if name == "*" => Some(file),
            _ => self.resolve(module, path, tried).or(Some(file)),
        }
    }

    fn lookup(&self, module: usize, name: &str, tried: &mut BTreeSet<(usize, String)>) -> Option<Target> {
        if !tried.insert((module, name.to_owned())) {
            return None;
        }
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Target::File(here.file));
        }
        if let Some(import) = here.imports.iter().find(|import| import.name == name) {
            return self.resolve(module, &import.path, tried).or(Some(Target::OtherCrate));
        }
        let globs = here.imports.iter().filter(|import| import.name == "*");
        globs.into_iter().find_map(|glob| match self.resolve(module, &glob.path[..glob.path.len() - 1], tried)? {
            Target::Module(source) => self.lookup(source, name, tried),
            Target::File(_) | Target::OtherCrate => None,
        })
    }
}

/// One item of a module, without its attributes and visibility.
struct Item<'a> {
    tokens: &'a [TokenTree],
    is_public: bool,
    is_test: bool,
}

/// The first item of a module, and the tokens after it.
fn split_item(tokens: &[TokenTree]) -> (Item<'_>, &[TokenTree]) {
    let mut begin = 0;
    let mut is_test = false;
    while is_punct(tokens.get(begin), '#') {
        begin += 1 + usize::from(is_punct(tokens.get(begin + 1), '!'));
        is_test |= tokens.get(begin).is_some_and(is_cfg_test);
        begin += 1;
    }
    let is_public = is_ident(tokens.get(begin), "pub");
    if is_public {
        begin += 1;
        let scope =
            |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
        begin += usize::from(tokens.get(begin).is_some_and(scope));
    }
    // A value may contain braces, so its item ends only at the semicolon.
    let is_value = ["use", "static", "type"].iter().any(|word| is_ident(tokens.get(begin), word))
        || (is_ident(tokens.get(begin), "const") && !is_ident(tokens.get(begin + 1), "fn"));
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => !is_value && group.delimiter() == Delimiter::Brace,
        token => is_punct(Some(token), ';'),
    };
    let body = tokens.get(begin..).unwrap_or_default();
    let length = body.iter().position(ends).map_or(body.len(), |end| end + 1);
    (Item { tokens: &body[..length], is_public, is_test }, &body[length..])
}

/// Code without the items of its tests, inside functions and macros too.
pub(super) fn without_tests(code: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let (mut kept, mut rest) = (Vec::new(), tokens.as_slice());
    while let [token, after @ ..] = rest {
        rest = after;
        match (token, after) {
            (token, [attribute, item @ ..]) if is_punct(Some(token), '#') && is_cfg_test(attribute) => {
                rest = split_item(item).1;
            }
            (TokenTree::Group(group), _) => {
                let content = without_tests(group.stream()).into_iter().collect();
                kept.push(Group::new(group.delimiter(), content).into());
            }
            (token, _) => kept.push(token.clone()),
        }
    }
    kept
}

/// `cfg(test)`, `cfg(all(test, …))`, but not `cfg(not(test))`.
fn is_cfg_test(attribute: &TokenTree) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text.starts_with("[cfg(") && !text.contains("not(test") && (text.contains("(test") || text.contains(",test"))
}

/// Adds the imports of a `use` declaration, the keyword excepted.
fn use_tree(tokens: &[TokenTree], prefix: &mut Vec<String>, reexport: bool, imports: &mut Vec<Import>) {
    let length = prefix.len();
    let mut name = None;
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match token {
            TokenTree::Ident(word) if word == "as" => {
                name = rest.first().map(ToString::to_string);
                break;
            }
            TokenTree::Ident(word) => prefix.push(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == '*' => prefix.push("*".to_owned()),
            TokenTree::Group(group) => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                for tree in tokens.split(|token| is_punct(Some(token), ',')).filter(|tree| !tree.is_empty()) {
                    use_tree(tree, prefix, reexport, imports);
                }
                prefix.truncate(length);
                return;
            }
            _ => {}
        }
    }
    // `use a::{self}` names a.
    if prefix.len() > 1 && prefix.last().is_some_and(|last| last == "self") {
        prefix.pop();
    }
    let name = name.or_else(|| prefix.last().cloned()).unwrap_or_default();
    imports.push(Import { name, path: prefix.clone(), reexport });
    prefix.truncate(length);
}

/// The name that an item defines.
fn defined_name(tokens: &[TokenTree]) -> Option<String> {
    const KEYWORDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];
    let keyword = tokens.iter().position(|token| KEYWORDS.iter().any(|keyword| is_ident(Some(token), keyword)))?;
    // `impl` defines nothing, and a keyword inside of it belongs to another item.
    if tokens[..keyword].iter().any(|token| is_ident(Some(token), "impl")) {
        return None;
    }
    let names = tokens[keyword + 1..].iter().filter_map(|token| match token {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    });
    names.into_iter().find(|name| !["fn", "mut", "unsafe", "async"].contains(&name.as_str()))
}

/// Adds the paths in the code of an item, and the imports of its inner `use` declarations.
fn paths_of(tokens: &[TokenTree], paths: &mut BTreeSet<Vec<String>>, imports: &mut Vec<Import>) {
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '.' && matches!(rest.first(), Some(TokenTree::Ident(_))) => {
                // A field or a method.
                rest = &rest[1..];
            }
            TokenTree::Group(group) => paths_of(&group.stream().into_iter().collect::<Vec<_>>(), paths, imports),
            TokenTree::Punct(punct) if punct.as_char() == ':' && is_punct(rest.first(), ':') => {
                // A path of another crate, `::metrics::counter`, or an associated item of a type in angle brackets.
                rest = &rest[1 + usize::from(matches!(rest.get(1), Some(TokenTree::Ident(_))))..];
            }
            TokenTree::Ident(word) if word == "use" => {
                let end = rest.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(rest.len());
                use_tree(&rest[..end], &mut Vec::new(), false, imports);
                rest = &rest[end..];
            }
            TokenTree::Ident(word) => {
                let mut path = vec![word.to_string()];
                while let [first, second, TokenTree::Ident(next), after @ ..] = rest
                    && is_punct(Some(first), ':')
                    && is_punct(Some(second), ':')
                {
                    path.push(next.to_string());
                    rest = after;
                }
                paths.insert(path);
            }
            _ => {}
        }
    }
}

pub(super) fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
}

fn is_ident(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}
