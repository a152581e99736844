//! Formats elements as text.

use std::fmt::{self, Display, Formatter};

use segue_text::terminal::visible;

use crate::{Element, Tree};

/// One line for the message, then its fields, indented and with the values in a column.
impl Display for Element {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}  ", self.packet)?;
        if let Some(time) = &self.time {
            write!(f, "{time}  ")?;
        }
        match (self.message, &self.error) {
            (Some(message), _) => writeln!(f, "{message}")?,
            (None, error) => writeln!(f, "{}", error.as_deref().unwrap_or("not decoded"))?,
        }
        if let (Some(source), Some(destination)) = (&self.source, &self.destination) {
            writeln!(f, "      {source} > {destination}")?;
        }
        for outer in &self.within {
            writeln!(f, "      in {}  {} > {}", outer.tunnel, outer.source, outer.destination)?;
        }
        if self.message.is_none() {
            return Ok(());
        }
        object(f, &self.fields, 6)?;
        if let Some(cut) = &self.cut {
            writeln!(f, "      (cut {cut})")?;
        } else if !self.reencodes {
            writeln!(f, "      (written again, this is not the same bytes)")?;
        }
        Ok(())
    }
}

/// The fields of an object, one per line. Nested objects and lists of objects follow their name, indented.
fn object(f: &mut Formatter<'_>, tree: &Tree, indent: usize) -> fmt::Result {
    let Tree::Object(fields) = tree else { return Ok(()) };
    let flat = |value: &Tree| inline(value).is_some();
    let widths = fields.iter().filter(|(_, value)| flat(value)).map(|(name, _)| name.len());
    let width = widths.max().unwrap_or(0);
    for (name, value) in fields {
        if let Some(text) = inline(value) {
            writeln!(f, "{:indent$}{name:width$}  {text}", "")?;
            continue;
        }
        writeln!(f, "{:indent$}{name}", "")?;
        inside(f, value, indent + 2)?;
    }
    Ok(())
}

/// A nested object or list, below its name.
fn inside(f: &mut Formatter<'_>, tree: &Tree, indent: usize) -> fmt::Result {
    match tree {
        Tree::List(items) => items.iter().try_for_each(|item| entry(f, item, indent)),
        other => object(f, other, indent),
    }
}

/// An object in a list, indented below its first field if that names an option, a TLV or an attribute.
fn entry(f: &mut Formatter<'_>, tree: &Tree, indent: usize) -> fmt::Result {
    let Tree::Object(fields) = tree else { return object(f, tree, indent) };
    match fields.split_first() {
        Some(((name, Tree::Text(option)), rest)) if name == "option" => {
            writeln!(f, "{:indent$}{option}", "")?;
            object(f, &Tree::Object(rest.to_vec()), indent + 2)
        }
        Some(((name, Tree::Text(tlv)), [(_, value)]))
            if ["tlv", "attribute"].contains(&&**name) =>
        {
            match inline(value) {
                Some(text) => writeln!(f, "{:indent$}{tlv}  {text}", ""),
                None => {
                    writeln!(f, "{:indent$}{tlv}", "")?;
                    inside(f, value, indent + 2)
                }
            }
        }
        _ => {
            writeln!(f, "{:indent$}-", "")?;
            object(f, tree, indent + 2)
        }
    }
}

/// The text of a value that fits on the line of its name; `None` if it does not.
fn inline(tree: &Tree) -> Option<String> {
    match tree {
        Tree::Null => Some("unknown".into()),
        Tree::Bool(true) => Some("yes".into()),
        Tree::Bool(false) => Some("no".into()),
        Tree::Number(number) => Some(number.to_string()),
        Tree::Named(number, name) => Some(format!("{number} ({name})")),
        Tree::Negative(number) => Some(number.to_string()),
        Tree::Text(text) => Some(visible(text)),
        Tree::List(items) if items.is_empty() => Some("none".into()),
        Tree::List(items) => {
            let items: Option<Vec<String>> = items
                .iter()
                .map(|item| match item {
                    Tree::List(_) | Tree::Object(_) => None,
                    plain => inline(plain),
                })
                .collect();
            items.map(|items| items.join(" "))
        }
        Tree::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Nothing;

    #[test]
    fn fields_stand_in_columns_and_options_under_their_names() {
        let option = Tree::object([("option", "mtu".into()), ("mtu", 1_500_u16.into())]);
        let header = Tree::object([("home_address", "2001:db8::1".into())]);
        let broken = Nothing::Broken(String::new());
        let mut element = Element::without_message(12, broken);
        (element.message, element.error) = (Some("Router Advertisement"), None);
        element.fields = Tree::object([
            ("cur_hop_limit", 64_u8.into()),
            ("flags", Tree::List(vec!["M".into(), "O".into()])),
            ("name", "a\u{1b}[2J".into()),
            ("status", Tree::named(128, Some("Reason unspecified"))),
            ("checksum_ok", Tree::Null),
            ("options", Tree::List(vec![option])),
            ("header", header),
        ]);
        element.time = Some("2026-01-31 14:05:00.000001Z".into());
        element.source = Some("fe80::1".into());
        element.destination = Some("ff02::1".into());
        let expected = "  12  2026-01-31 14:05:00.000001Z  Router Advertisement
      fe80::1 > ff02::1
      cur_hop_limit  64
      flags          M O
      name           a\\u{1b}[2J
      status         128 (Reason unspecified)
      checksum_ok    unknown
      options
        mtu
          mtu  1500
      header
        home_address  2001:db8::1
      (written again, this is not the same bytes)
";
        assert_eq!(element.to_string(), expected);
    }
}
