//! What a screen of 80 columns must hold: no line that is longer, and no word that is cut.

/// Columns of a terminal, and of a pipe.
pub(crate) const COLUMNS: usize = 80;

/// Asserts that the screen that `what` shows fits.
pub(crate) fn fits(what: &str, screen: &str) {
    for line in screen.lines() {
        let wide = line.chars().count();
        assert!(wide <= COLUMNS || is_one_token(line), "{what}: {wide} columns: {line}");
        // The mark of a text that was cut; a page leaves something out with one that stands by itself.
        let cut = line.split(' ').any(|word| word.len() > '…'.len_utf8() && word.ends_with('…'));
        assert!(!cut, "{what}: a word is cut: {line}");
    }
}

/// Whether a line has nothing but one token that cannot be broken: a path, an address, a join line.
fn is_one_token(line: &str) -> bool {
    let token = line.trim();
    !token.contains(' ') && token.contains(['/', ':'])
}
