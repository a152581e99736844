//! The style of pages and drawings. Screens follow the reader's preference for light or dark; paper is light.

use crate::palette::{DARK_GRID, DARK_INK, GRID, INK, PAPER, css, dark_rules};

/// The style sheet of a page.
pub(crate) fn page() -> String {
    let [light, dark] = PAPER;
    let (ink, grid, rules) = (css(INK), css(GRID), dark_rules());
    format!(
        ":root{{--paper:{light};--ink:{ink};--soft:#5b6470;--grid:{grid};--link:#0b57a4;--edge:#0007}}\n\
         @media screen and (prefers-color-scheme:dark){{\n\
         :root{{--paper:{dark};--ink:{DARK_INK};--soft:#9aa4b2;--grid:{DARK_GRID};--link:#8cc4ff;--edge:#fff7}}\n\
         {rules}}}\n{PAGE}"
    )
}

/// A page's drawing as a separate file, including its background and colours. On a screen it is at most as wide as the
/// window.
pub(crate) fn standalone(svg: &str) -> String {
    let [light, dark] = PAPER;
    let rules = dark_rules();
    let style = format!(
        "<style>svg{{background:{light}}}\n@media screen and (prefers-color-scheme:dark){{\n\
         svg{{background:{dark}}}\n{rules}}}\n\
         @media screen{{svg:root{{max-width:100%;height:auto}}}}</style>"
    );
    let (head, rest) = svg.split_once('>').unwrap_or((svg, ""));
    format!("{head}>{style}{rest}")
}

/// The rules that do not depend on the screen's colours. A shadow shows on which side a scrolling box continues: the
/// first two backgrounds move with the content and cover the shadows at its ends.
const PAGE: &str = r#"*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:break-word}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.375rem;line-height:1.25;margin:2.75rem 0 .5rem}
h3{font-size:1.0625rem;line-height:1.3;margin:2rem 0 .5rem}
p,ul{max-width:44rem}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
code{overflow-wrap:anywhere}
sub,sup{font-size:.75em;line-height:0}
.verdict{font-size:1.125rem;font-weight:600;border-left:.25rem solid var(--link);padding-left:.75rem;margin:1rem 0}
.lead{font-size:1.125rem;color:var(--soft)}
.made,figcaption,.more{color:var(--soft);font-size:.9rem}
figure{margin:.75rem 0 1.75rem}
figcaption{margin-top:.4rem;max-width:44rem}
figcaption span{display:block}
.scroll{overflow-x:auto;background:linear-gradient(90deg,var(--paper) 50%,transparent) 0/2.5rem 100% no-repeat local,linear-gradient(270deg,var(--paper) 50%,transparent) 100%/2.5rem 100% no-repeat local,linear-gradient(90deg,var(--edge),transparent) 0/1rem 100% no-repeat scroll,linear-gradient(270deg,var(--edge),transparent) 100%/1rem 100% no-repeat scroll}
.more{display:none;margin:0 0 .4rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.4rem .75rem .4rem 0;border-bottom:1px solid var(--grid)}
thead th{border-bottom-color:var(--soft)}
tbody th{font-weight:inherit}
.number{text-align:right}
tbody .number{white-space:nowrap}
.prose{min-width:12rem}
svg{display:block;width:100%;height:auto}
svg text{paint-order:stroke;stroke:var(--paper);stroke-width:8px;stroke-linejoin:round}
.narrow{display:none}
@media screen and (max-width:43.75rem){.wide{display:none}.narrow{display:block}}
@media screen and (max-width:30rem){.more{display:block}}
@media print{
main{max-width:none;padding:0}
.scroll{overflow:visible;background:none}
table{min-width:0!important;font-size:.75rem}
tbody .number{white-space:normal}
.prose{min-width:0}
h1,h2,h3{break-after:avoid}
figure,tr{break-inside:avoid}}
"#;
