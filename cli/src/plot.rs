//! Histograms as an SVG picture.

use std::fmt::Display;

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::histogram::{Bucket, Histogram, grouped};

const WIDTH: u32 = 800;
/// The height of the title of the picture.
const TITLE: u32 = 40;
/// The height of one chart.
const CHART: u32 = 300;
const FONT: &str = "sans-serif";
const BLUE: RGBColor = RGBColor(0x48, 0x78, 0xa8);
/// The most names below the axis: more would overlap.
const MOST_NAMES: usize = 14;
/// The most bars with their count above them.
const MOST_COUNTS: usize = 24;
/// The lower end of the count axis. A bar of one is above it.
const BELOW_ONE: f64 = 0.5;

/// A column of bar charts.
pub(crate) struct Plot {
    title: String,
    charts: Vec<Chart>,
}

/// A bar chart: the numbers of things per bucket, on a logarithmic axis.
struct Chart {
    /// What the buckets divide.
    x: &'static str,
    /// What is counted.
    y: &'static str,
    bars: Vec<(String, u64)>,
}

impl Plot {
    /// A picture with a title.
    pub(crate) fn new(title: &str) -> Plot {
        Plot { title: drawable(title), charts: Vec::new() }
    }

    /// Adds a chart of `histogram`: its axes are named `x` and `y`, and `label` formats the numbers on the x axis.
    pub(crate) fn add<L: Display>(
        &mut self,
        x: &'static str,
        y: &'static str,
        histogram: &Histogram,
        label: impl Fn(u64) -> L,
    ) {
        let bar = |bucket: Bucket| (bucket.name(&label), bucket.count);
        self.charts.push(Chart { x, y, bars: histogram.buckets().into_iter().map(bar).collect() });
    }

    /// The picture as SVG. The same plot gives the same text.
    ///
    /// `None` if the backend refuses the picture, which does not happen for one in memory.
    pub(crate) fn svg(&self) -> Option<String> {
        let mut svg = String::new();
        let charts = u32::try_from(self.charts.len()).ok()?;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, TITLE + charts * CHART)).into_drawing_area();
        root.fill(&WHITE).ok()?;
        let (title, below) = root.split_vertically(TITLE);
        let style = (FONT, 18).into_font().into_text_style(&title).pos(Pos::new(HPos::Center, VPos::Center));
        title.draw_text(&self.title, &style, (i32::try_from(WIDTH / 2).ok()?, i32::try_from(TITLE / 2).ok()?)).ok()?;
        for (chart, area) in self.charts.iter().zip(below.split_evenly((self.charts.len().max(1), 1))) {
            chart.draw(&area)?;
        }
        root.present().ok()?;
        drop((root, title, below));
        Some(svg)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Chart {
    fn draw(&self, area: &Area<'_>) -> Option<()> {
        let most = self.bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        let bars = self.bars.len().max(1);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(45)
            .y_label_area_size(95)
            // half a decade above the longest bar, for its number
            .build_cartesian_2d((0..bars - 1).into_segmented(), (BELOW_ONE..most as f64 * 3.0).log_scale())
            .ok()?;
        let name = |bar: &SegmentValue<usize>| match bar {
            SegmentValue::CenterOf(bar) => self.bars.get(*bar).map(|(name, _)| name.clone()).unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(bars.min(MOST_NAMES))
            .x_desc(self.x)
            .y_desc(format!("{} (logarithmic)", self.y))
            .x_label_formatter(&name)
            .y_label_formatter(&|count| count_name(*count))
            .label_style((FONT, 11))
            .axis_desc_style((FONT, 13))
            .draw()
            .ok()?;
        let drawn = || self.bars.iter().enumerate().filter(|(_, (_, count))| *count > 0);
        chart
            .draw_series(drawn().map(|(bar, (_, count))| {
                let corners = [(SegmentValue::Exact(bar), *count as f64), (SegmentValue::Exact(bar + 1), BELOW_ONE)];
                let mut rectangle = Rectangle::new(corners, BLUE.filled());
                rectangle.set_margin(0, 0, 1, 1);
                rectangle
            }))
            .ok()?;
        if bars <= MOST_COUNTS {
            let style = TextStyle::from((FONT, 11)).pos(Pos::new(HPos::Center, VPos::Bottom));
            let number = |(bar, (_, count)): (usize, &(String, u64))| {
                Text::new(grouped(*count), (SegmentValue::CenterOf(bar), *count as f64), style.clone())
            };
            chart.draw_series(drawn().map(number)).ok()?;
        }
        Some(())
    }
}

/// The number at a line of the count axis. Lines are at powers of ten.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count is not negative, and one of 2^64 and more is cast to the largest"
)]
fn count_name(count: f64) -> String {
    if count < 1.0 { String::new() } else { grouped(count.round() as u64) }
}

/// Replaces the characters that XML 1.0 does not allow; the backend escapes the others.
fn drawable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(title: &str, counts: &[(u64, u64)]) -> String {
        let mut histogram = Histogram::default();
        counts.iter().for_each(|(number, times)| histogram.add_times(*number, *times));
        let mut plot = Plot::new(title);
        plot.add("keys per minishard", "minishards", &histogram, |number| number);
        plot.add("bytes", "keys", &Histogram::default(), |number| number);
        plot.svg().unwrap()
    }

    /// The heights of the bars, from left to right.
    fn bars(svg: &str) -> Vec<u64> {
        let height = |line: &str| line.split("height=\"").nth(1)?.split('"').next()?.parse().ok();
        svg.lines().filter(|line| line.contains("#4878A8")).filter_map(height).collect()
    }

    /// The texts of the picture; the backend writes each on a line of its own.
    fn texts(svg: &str) -> Vec<&str> {
        let lines: Vec<_> = svg.lines().collect();
        lines.windows(2).filter(|pair| pair[0].starts_with("<text")).map(|pair| pair[1]).collect()
    }

    #[test]
    fn a_bar_of_one_is_visible_beside_a_million() {
        let heights = bars(&plot("numbers", &[(0, 1_000_000), (3, 1), (9, 100)]));
        assert_eq!(heights.len(), 3, "0, 2.. and 8..; the empty buckets between them have no bar");
        assert!(heights[0] > heights[2] && heights[2] > heights[1] && heights[1] >= 5, "{heights:?}");
    }

    #[test]
    fn axes_have_names_and_numbers() {
        let svg = plot("numbers, gen-0000000001", &[(0, 1000), (3, 1)]);
        let texts = texts(&svg);
        let expected = [
            "numbers, gen-0000000001",
            "keys per minishard",
            "minishards (logarithmic)",
            "0",
            "2..",
            "1",
            "100",
            "1,000",
        ];
        for text in expected {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
    }

    #[test]
    fn the_same_plot_is_the_same_text() {
        let counts: Vec<_> = (0..64).map(|bits| (1 << bits, bits + 1)).collect();
        assert_eq!(plot("a", &counts), plot("a", &counts));
        assert_eq!(bars(&plot("a", &counts)).len(), 64);
    }

    #[test]
    fn a_title_is_text_and_no_markup() {
        let svg = plot("a<script>&\"'\u{1b}[31m\u{0}\u{ffff}", &[(1, 1)]);
        assert!(svg.contains("a&lt;script&gt;&amp;&quot;&apos;\u{fffd}[31m\u{fffd}\u{fffd}"), "{svg}");
        assert!(!svg.contains("<script>") && !svg.chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn the_largest_counts_are_drawn() {
        assert_eq!(bars(&plot("a", &[(1, u64::MAX), (u64::MAX, 1)])).len(), 2);
    }
}
