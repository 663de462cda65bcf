//! Histograms as an SVG picture.

use std::fmt::{Display, Write};

use crate::histogram::{Histogram, grouped};

const WIDTH: usize = 640;
const HEIGHT: usize = 200;
const MARGIN: usize = 40;

/// A column of charts.
pub(crate) struct Plot {
    svg: String,
    charts: usize,
}

impl Plot {
    pub(crate) fn new() -> Plot {
        Plot { svg: String::new(), charts: 0 }
    }

    /// Adds a bar chart; `label` formats the number below a bar.
    pub(crate) fn add<L: Display>(&mut self, title: &str, histogram: &Histogram, label: impl Fn(u64) -> L) {
        let top = self.charts * (HEIGHT + 2 * MARGIN) + MARGIN;
        let buckets = histogram.buckets();
        let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
        let step = WIDTH / buckets.len().max(1);
        self.text(MARGIN, top - MARGIN / 3, "start", title);
        for (at, bucket) in buckets.iter().enumerate() {
            let height = usize::try_from(u128::from(bucket.count) * HEIGHT as u128 / u128::from(most)).unwrap_or(0);
            let (left, width) = (MARGIN + at * step, step.saturating_sub(2).clamp(1, 60));
            let name = bucket.name(&label);
            let tip = format!("{name}: {}", grouped(bucket.count));
            let y = top + HEIGHT - height;
            // writing to a string does not fail
            let _ = writeln!(
                self.svg,
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"#4878a8\"><title>{tip}</title></rect>"
            );
            if step >= 28 || at % 4 == 0 {
                self.text(left + width / 2, top + HEIGHT + 14, "middle", &name);
            }
        }
        self.charts += 1;
    }

    fn text(&mut self, x: usize, y: usize, anchor: &str, text: &str) {
        let _ = writeln!(self.svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// The picture as SVG.
    pub(crate) fn svg(&self) -> String {
        let (width, height) = (WIDTH + 2 * MARGIN, self.charts * (HEIGHT + 2 * MARGIN));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.svg
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_a_bar_for_each_bucket() {
        let mut histogram = Histogram::new();
        histogram.add_times(0, 5);
        histogram.add_times(3, 10);
        let mut plot = Plot::new();
        plot.add("keys", &histogram, |number| number);
        plot.add("nothing", &Histogram::new(), |number| number);
        let svg = plot.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<title>").count(), 3, "0, 1 and 2..");
        assert!(svg.contains("height=\"100\" fill=\"#4878a8\"><title>0: 5</title>"), "{svg}");
        assert!(svg.contains("height=\"200\" fill=\"#4878a8\"><title>2..: 10</title>"), "{svg}");
    }
}
