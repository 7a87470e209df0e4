//! Bar charts of measurements, as a page of SVG.
//!
//! A chart has groups of bars, one below the other, and each bar belongs to a series, which has the
//! same colour in all charts of a page. The figure is written after its bar, so that nothing has to
//! be read from an axis.

use svg::Document;
use svg::node::element::{Group as Element, Rectangle, Text};

/// Pixels of the page and of its parts.
const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 16.0;
const GAP: f64 = 24.0;
const LABEL_WIDTH: f64 = 130.0;
const FIGURE_WIDTH: f64 = 52.0;
const TITLE_HEIGHT: f64 = 18.0;
const NOTE_HEIGHT: f64 = 15.0;
const LEGEND_HEIGHT: f64 = 28.0;
const BAR_HEIGHT: f64 = 9.0;
const GROUP_GAP: f64 = 5.0;
/// Charts beside each other.
const COLUMNS: usize = 2;
/// Pixels that a character of the legend takes at most.
const CHARACTER: f64 = 7.0;
/// The characters of a line of a chart's head.
const LINE: usize = 76;

/// Colours that people who see few colours can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] =
    ["#999999", "#e69f00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#f0e442"];
const INK: &str = "#222222";
const FAINT: &str = "#666666";

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The title: the things that are compared, and the settings.
    pub title: String,
    /// A note below the title; empty for none.
    pub note: String,
    /// The groups, from above.
    pub groups: Vec<Group>,
}

/// Bars that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The name of the group.
    pub label: String,
    /// The bars, from above.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The name of its series.
    pub series: String,
    /// The figure; a negative one, or one that is none, has no bar.
    pub figure: f64,
}

/// Returns the document of a page of charts with a common title, two beside each other.
#[must_use]
pub fn page(title: &str, charts: &[Chart]) -> String {
    let series = all_series(charts);
    let column_width = (WIDTH - 2.0 * MARGIN - GAP) / COLUMNS as f64;
    let mut top = 2.0 * MARGIN + TITLE_HEIGHT + LEGEND_HEIGHT;
    let mut body = Element::new();
    for row in charts.chunks(COLUMNS) {
        for (column, chart) in row.iter().enumerate() {
            let left = MARGIN + column as f64 * (column_width + GAP);
            body = body.add(draw(chart, &series, left, top, column_width));
        }
        top += row.iter().map(height).fold(0.0, f64::max) + GAP;
    }
    let background = Rectangle::new().set("width", WIDTH).set("height", top).set("fill", "white");
    let document = Document::new()
        .set("viewBox", (0, 0, WIDTH, top))
        .set("font-family", "sans-serif")
        .set("font-size", 11)
        .add(background)
        .add(text(title, MARGIN, MARGIN + TITLE_HEIGHT, INK).set("font-size", 15))
        .add(legend(&series, MARGIN + TITLE_HEIGHT + LEGEND_HEIGHT))
        .add(body);
    format!("{document}\n")
}

/// Returns the names of all series, in the order in which they first appear.
fn all_series(charts: &[Chart]) -> Vec<&str> {
    let mut series = Vec::new();
    let bars = charts.iter().flat_map(|chart| &chart.groups).flat_map(|group| &group.bars);
    for bar in bars {
        if !series.contains(&bar.series.as_str()) {
            series.push(bar.series.as_str());
        }
    }
    series
}

fn colour(series: &[&str], name: &str) -> &'static str {
    let at = series.iter().position(|it| *it == name).unwrap_or_default();
    COLOURS[at % COLOURS.len()]
}

fn legend(series: &[&str], top: f64) -> Element {
    let mut left = MARGIN;
    series.iter().fold(Element::new(), |element, name| {
        let at = left;
        left += 30.0 + name.len() as f64 * CHARACTER;
        element.add(bar(at, top - BAR_HEIGHT, 14.0, colour(series, name))).add(text(
            name,
            at + 19.0,
            top,
            INK,
        ))
    })
}

fn draw(chart: &Chart, series: &[&str], left: f64, top: f64, width: f64) -> Element {
    let mut element = Element::new();
    let mut at = top;
    for (line, is_title) in head(chart) {
        let (height, ink) = if is_title { (TITLE_HEIGHT, INK) } else { (NOTE_HEIGHT, FAINT) };
        at += height;
        let weight = if is_title { "bold" } else { "normal" };
        element = element.add(text(&line, left, at, ink).set("font-weight", weight));
    }
    at += GROUP_GAP;
    let bars = chart.groups.iter().flat_map(|group| &group.bars);
    let most = bars.map(|bar| bar.figure).filter(|it| it.is_finite()).fold(0.0, f64::max);
    let scale = (width - LABEL_WIDTH - FIGURE_WIDTH) / most.max(f64::MIN_POSITIVE);
    let start = left + LABEL_WIDTH;
    for group in &chart.groups {
        at += GROUP_GAP;
        let label = text(&group.label, start - 6.0, at + BAR_HEIGHT, INK);
        element = element.add(label.set("text-anchor", "end"));
        for Bar { series: name, figure } in &group.bars {
            let length = if figure.is_finite() { figure.max(0.0) * scale } else { 0.0 };
            element = element.add(bar(start, at, length, colour(series, name)));
            let figure = text(&shown(*figure), start + length + 4.0, at + BAR_HEIGHT - 1.0, FAINT);
            element = element.add(figure.set("font-size", 9));
            at += BAR_HEIGHT;
        }
    }
    element
}

/// Returns the lines above the bars, each with whether it is one of the title's.
fn head(chart: &Chart) -> Vec<(String, bool)> {
    let title = lines(&chart.title).into_iter().map(|line| (line, true));
    title.chain(lines(&chart.note).into_iter().map(|line| (line, false))).collect()
}

/// Breaks a text into lines, between words.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn height(chart: &Chart) -> f64 {
    let head: f64 = head(chart)
        .iter()
        .map(|(_, is_title)| if *is_title { TITLE_HEIGHT } else { NOTE_HEIGHT })
        .sum();
    let group = |group: &Group| GROUP_GAP + group.bars.len() as f64 * BAR_HEIGHT;
    head + GROUP_GAP + chart.groups.iter().map(group).sum::<f64>()
}

/// Returns a figure with two or three digits that count.
fn shown(figure: f64) -> String {
    let digits = match figure.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{figure:.digits$}")
}

fn bar(left: f64, top: f64, length: f64, colour: &str) -> Rectangle {
    Rectangle::new()
        .set("x", round(left))
        .set("y", round(top))
        .set("width", round(length))
        .set("height", BAR_HEIGHT - 1.0)
        .set("fill", colour)
}

fn text(content: &str, left: f64, base: f64, colour: &str) -> Text {
    Text::new(content).set("x", round(left)).set("y", round(base)).set("fill", colour)
}

/// Rounds to tenths of a pixel, so that a small change of a figure changes little of the document.
fn round(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(title: &str, figures: &[(&str, f64)]) -> Chart {
        let bar =
            |(series, figure): &(&str, f64)| Bar { series: (*series).to_owned(), figure: *figure };
        let bars = figures.iter().map(bar).collect();
        let group = Group { label: "a < b".to_owned(), bars };
        Chart { title: title.to_owned(), note: "seen & said".to_owned(), groups: vec![group] }
    }

    #[test]
    fn bars_are_as_long_as_their_figures_and_texts_are_escaped() {
        let first = chart("one", &[("ours", 1.0), ("theirs", 4.0), ("none", f64::NAN)]);
        let page = page("all", &[first, chart("two", &[("theirs", 250.0)])]);
        assert!(page.contains("a &lt; b") && page.contains("seen &amp; said"), "{page}");
        let full = (WIDTH - 2.0 * MARGIN - GAP) / 2.0 - LABEL_WIDTH - FIGURE_WIDTH;
        let widths = |length: f64| page.matches(&format!("width=\"{}\"", round(length))).count();
        assert_eq!((widths(full), widths(full / 4.0), widths(0.0)), (2, 1, 1), "{page}");
        for figure in [">\n1.00\n<", ">\n4.00\n<", ">\n250\n<", ">\nNaN\n<"] {
            assert!(page.contains(figure), "{figure}: {page}");
        }
    }

    #[test]
    fn a_series_has_one_colour_and_a_long_title_several_lines() {
        let series = ["x", "y"];
        assert_ne!(colour(&series, "x"), colour(&series, "y"));
        let long = chart(&"word ".repeat(40), &[]);
        assert_eq!(head(&long).len(), 4);
        assert!(lines("").is_empty());
    }
}
