//! Colours.

use plotters::style::RGBColor;

/// Background on light and on dark screens.
pub(crate) const PAPER: [&str; 2] = ["#ffffff", "#15181d"];

/// Colours after Okabe and Ito, which colour-blind readers can distinguish, ordered so that neighbours differ most; and
/// their counterparts for dark screens. Each has a contrast of 3 : 1 to its background, as WCAG requires for graphics.
const COLOURS: [(RGBColor, &str); 6] = [
    (RGBColor(0x00, 0x72, 0xb2), "#56b4e9"),
    (RGBColor(0xd5, 0x5e, 0x00), "#f0813a"),
    (RGBColor(0x00, 0x8a, 0x64), "#1fb68a"),
    (RGBColor(0xb5, 0x60, 0x8f), "#db93bc"),
    (RGBColor(0x94, 0x68, 0x00), "#e6b422"),
    (RGBColor(0x6b, 0x6f, 0x76), "#a9afb8"),
];

/// Text and axes; below for dark screens.
pub(crate) const INK: RGBColor = RGBColor(0x2b, 0x2f, 0x36);
pub(crate) const DARK_INK: &str = "#e4e7ec";
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xdf, 0xe3, 0xe8);
pub(crate) const DARK_GRID: &str = "#333a45";

/// A colour in the notation of drawings.
pub(crate) fn css(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Style rules that replace the colours of drawings on dark screens. Drawings contain fixed colours, which the rules
/// match by value.
pub(crate) fn dark_rules() -> String {
    let rule = |(light, dark): (RGBColor, &str)| {
        let light = css(light);
        format!(
            "svg [stroke=\"{light}\"]{{stroke:{dark}}}\nsvg [fill=\"{light}\"]{{fill:{dark}}}\n"
        )
    };
    COLOURS.into_iter().chain([(INK, DARK_INK), (GRID, DARK_GRID)]).map(rule).collect()
}

/// Assigns each role a colour, in the order in which roles are first used. With more than six roles, colours repeat.
#[derive(Clone, Debug, Default)]
pub struct Palette(Vec<String>);

impl Palette {
    /// The colour of `role` if it already has one, else ink.
    pub(crate) fn known(&self, role: &str) -> RGBColor {
        let known = self.0.iter().position(|each| each == role);
        known.map_or(INK, |index| COLOURS[index % COLOURS.len()].0)
    }

    /// The colour of `role`; assigns one if necessary.
    pub(crate) fn colour(&mut self, role: &str) -> RGBColor {
        let known = self.0.iter().position(|each| each == role);
        let index = known.unwrap_or_else(|| {
            self.0.push(role.to_owned());
            self.0.len() - 1
        });
        COLOURS[index % COLOURS.len()].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_keeps_its_colour_and_others_get_another() {
        let mut palette = Palette::default();
        let wifi = palette.colour("wifi");
        assert_ne!(palette.colour("lte"), wifi);
        assert_eq!(palette.colour("wifi"), wifi);
        assert_eq!((palette.known("wifi"), palette.known("outage")), (wifi, INK));
        for i in 0..COLOURS.len() - 2 {
            assert_ne!(palette.colour(&i.to_string()), wifi);
        }
        assert_eq!(palette.colour("one too many"), wifi);
    }

    #[test]
    fn lines_and_letters_stand_out_from_the_ground_on_light_and_dark_screens() {
        for (light, dark) in COLOURS {
            assert!(contrast(light, hex(PAPER[0])) >= 3.0, "{light:?}");
            assert!(contrast(hex(dark), hex(PAPER[1])) >= 3.0, "{dark}");
        }
        assert!(contrast(INK, hex(PAPER[0])) >= 7.0);
        assert!(contrast(hex(DARK_INK), hex(PAPER[1])) >= 7.0);
    }

    #[test]
    fn every_colour_of_a_drawing_is_turned_for_dark_screens() {
        let rules = dark_rules();
        for colour in COLOURS.map(|(light, _)| light).into_iter().chain([INK, GRID]) {
            for attribute in ["stroke", "fill"] {
                let found = format!("svg [{attribute}=\"{}\"]{{{attribute}:#", css(colour));
                assert!(rules.contains(&found), "{found}");
            }
        }
    }

    fn hex(colour: &str) -> RGBColor {
        let part = |at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
        RGBColor(part(1), part(3), part(5))
    }

    /// The contrast ratio of WCAG 2.
    fn contrast(a: RGBColor, b: RGBColor) -> f64 {
        let linear = |part: u8| match f64::from(part) / 255.0 {
            part if part <= 0.04045 => part / 12.92,
            part => ((part + 0.055) / 1.055).powf(2.4),
        };
        let light =
            |RGBColor(r, g, b)| 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05;
        (light(a) / light(b)).max(light(b) / light(a))
    }
}
