//! Tables on standard output.

/// A table that is printed when all its rows are known.
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a title and column heads.
    pub fn new(title: impl Into<String>, heads: &[&str]) -> Self {
        Self {
            title: title.into(),
            rows: vec![heads.iter().map(|&head| head.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The table as text: the first column to the left, the others to the right.
    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|c| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max())
            .map(|width| width.unwrap_or(0))
            .collect();
        let mut text = format!("\n{}\n", self.title);
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            text.push_str("  ");
            text.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
            text.push('\n');
        }
        text
    }

    /// Prints it.
    pub fn print(&self) {
        print!("{}", self.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new("costs", &["variant", "ns"]);
        table.row(["a".to_owned(), "1234".to_owned()]);
        table.row(["longer name".to_owned(), "5".to_owned()]);
        let expected =
            "\ncosts\n  variant         ns\n  a             1234\n  longer name      5\n";
        assert_eq!(table.text(), expected);
    }
}
