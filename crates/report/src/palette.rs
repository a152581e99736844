//! Colours.

use plotters::style::RGBColor;

/// Okabe and Ito's colours, which colour-blind readers can tell apart, in the order in which
/// neighbours differ most; those too pale or too dark for one of the two backgrounds are left out.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];

/// Text and axes. The page's style sheet finds these two by value and turns them for dark screens.
pub(crate) const INK: RGBColor = RGBColor(0x2b, 0x2f, 0x36);
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xdf, 0xe3, 0xe8);

/// Gives each role a colour, in the order in which roles are first asked for; with more than six
/// roles colours repeat.
#[derive(Clone, Debug, Default)]
pub struct Palette(Vec<String>);

impl Palette {
    /// The colour that `role` has already, else that of ink.
    pub(crate) fn known(&self, role: &str) -> RGBColor {
        let known = self.0.iter().position(|each| each == role);
        known.map_or(INK, |index| COLOURS[index % COLOURS.len()])
    }

    /// The colour of `role`.
    pub(crate) fn colour(&mut self, role: &str) -> RGBColor {
        let known = self.0.iter().position(|each| each == role);
        let index = known.unwrap_or_else(|| {
            self.0.push(role.to_owned());
            self.0.len() - 1
        });
        COLOURS[index % COLOURS.len()]
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
}
