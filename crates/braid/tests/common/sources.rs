//! Source files as far as their imports go: the modules and items that a file has, and the paths that it names.
//!
//! A file is cut into words. Comments, texts and what only tests have are left out.

use std::collections::BTreeSet;

/// An import, or one of the imports of a group.
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name in the file that imports; `*` for all names.
    pub(crate) name: String,
    /// Whether the file shows the name to others.
    pub(crate) is_shown: bool,
}

/// One file.
#[derive(Default)]
pub(crate) struct Source {
    /// Modules that have files of their own.
    pub(crate) modules: Vec<String>,
    /// What the file itself defines.
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths outside imports.
    pub(crate) paths: Vec<Vec<String>>,
    /// Names outside imports that are no paths.
    pub(crate) names: BTreeSet<String>,
}

const DEFINING: [&str; 9] = ["struct", "enum", "union", "trait", "fn", "type", "const", "static", "mod"];

impl Source {
    pub(crate) fn of(text: &str) -> Self {
        let (words, mut source) = (without_tests(&words(text)), Self::default());
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let (mut at, mut depth) = (0, 0);
        while at < words.len() {
            let before = if at > 0 { word(at - 1) } else { "" };
            match word(at) {
                "use" if word(at + 1) != "<" => {
                    let is_shown = before == "pub" || before == ")";
                    at = source.import(&words, at + 1, &[], is_shown);
                }
                "mod" if word(at + 2) == ";" => source.modules.push(word(at + 1).to_owned()),
                "macro_rules" => _ = source.items.insert(word(at + 2).to_owned()),
                keyword if depth == 0 && DEFINING.contains(&keyword) => {
                    source.items.insert(word(at + 1).to_owned());
                }
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                name if is_name(name) && !["::", ".", "$"].contains(&before) => {
                    let mut path = vec![name.to_owned()];
                    while word(at + 1) == "::" && is_name(word(at + 2)) {
                        at += 2;
                        path.push(word(at).to_owned());
                    }
                    if path.len() > 1 { source.paths.push(path) } else { _ = source.names.insert(name.to_owned()) }
                }
                _ => {}
            }
            at += 1;
        }
        source
    }

    /// Takes the import that begins at a word behind `prefix`. Returns the place of the word behind it.
    fn import(&mut self, words: &[String], mut at: usize, prefix: &[String], is_shown: bool) -> usize {
        let mut path = prefix.to_vec();
        loop {
            match words[at].as_str() {
                "{" => {
                    at += 1;
                    while words[at] != "}" {
                        at = self.import(words, at, &path, is_shown);
                        at += usize::from(words[at] == ",");
                    }
                    return at + 1;
                }
                "::" => at += 1,
                "as" => {
                    self.imports.push(Import { path, name: words[at + 1].clone(), is_shown });
                    return at + 2;
                }
                "*" => {
                    self.imports.push(Import { path, name: "*".to_owned(), is_shown });
                    return at + 1;
                }
                name if is_name(name) => {
                    if name != "self" || path.is_empty() {
                        path.push(name.to_owned());
                    }
                    at += 1;
                }
                _ => {
                    let name = path.last().cloned().unwrap_or_default();
                    self.imports.push(Import { path, name, is_shown });
                    return at;
                }
            }
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::`, and every other character by itself.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let of_name = |character: char| character.is_alphanumeric() || character == '_';
        let name = rest.find(|character: char| !of_name(character)).unwrap_or(rest.len());
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            text_length(rest)
        } else if ["r", "br"].contains(&&rest[..name]) && rest[name..].trim_start_matches('#').starts_with('"') {
            let end = format!("\"{}", "#".repeat(rest[name..].find('"').unwrap_or(0)));
            let begin = name + end.len();
            rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
        } else if first == '\'' {
            character_length(rest)
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let length = if rest.starts_with("::") { 2 } else { name.max(first.len_utf8()) };
            words.push(rest[..length].to_owned());
            length
        };
        rest = &rest[length..];
    }
    words
}

/// The length of the text in quotes that comes first.
fn text_length(rest: &str) -> usize {
    let mut is_escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, character)| {
        let ends = *character == '"' && !is_escaped;
        is_escaped = *character == '\\' && !is_escaped;
        ends
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// The length of the character in quotes that comes first; of the quote alone where it begins a lifetime.
fn character_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(rest.len(), |end| end + 4),
        Some(_) => characters.next().filter(|(_, second)| *second == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}

/// The words without those that only tests have.
fn without_tests(words: &[String]) -> Vec<String> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < words.len() {
        let is = |attribute: &[&str]| words[at..].iter().take(attribute.len()).eq(attribute);
        if is(&["#", "[", "cfg", "(", "test", ")"]) || is(&["#", "[", "cfg", "(", "all", "(", "test"]) {
            at = item_end(words, at);
        } else {
            kept.push(words[at].clone());
            at += 1;
        }
    }
    kept
}

/// The place behind the item, with its attributes, that begins at a word.
fn item_end(words: &[String], begin: usize) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(begin) {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return at;
        }
        if depth == 0 && (word == "}" || word == ";") {
            return at + 1;
        }
    }
    words.len()
}
