//! Requirements for screens of 80 columns: no longer line, and no truncated word.

/// Columns of a terminal, and of a pipe.
pub(crate) const COLUMNS: usize = 80;

/// Asserts that a screen fits; `what` names it in messages.
pub(crate) fn fits(what: &str, screen: &str) {
    for line in screen.lines() {
        let wide = line.chars().count();
        assert!(wide <= COLUMNS || is_one_token(line), "{what}: {wide} columns: {line}");
        // A word that ends in `…` was truncated; a single `…` marks an intentional omission.
        let cut = line.split(' ').any(|word| word.len() > '…'.len_utf8() && word.ends_with('…'));
        assert!(!cut, "{what}: a word is cut: {line}");
    }
}

/// Whether a line consists of a single token that cannot be broken: a path, an address, a join line.
fn is_one_token(line: &str) -> bool {
    let token = line.trim();
    !token.contains(' ') && token.contains(['/', ':'])
}
