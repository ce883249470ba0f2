//! Reads ground-truth logs back, for tests that compare a trace with them.

use std::path::Path;

/// One line of the log; see `log::Record` for the meaning of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at `log::Record`")]
pub struct Operation {
    pub kind: String,
    pub pid: u32,
    pub node: u32,
    pub queue: u64,
    pub hsa_queue: Option<u64>,
    pub index: u64,
    pub name: String,
    pub kernel_object: u64,
    pub start_ns: u64,
    pub end_ns: u64,
    pub start_ticks: u64,
    pub end_ticks: u64,
    pub bytes: u64,
    pub signal: u64,
}

/// Reads a whole log. A last line without an end, of a process killed while it wrote, is left out.
pub fn read(path: &Path) -> Result<Vec<Operation>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|l| parse(l).ok_or_else(|| format!("{}: cannot read {l:?}", path.display())))
        .collect()
}

/// Parses a line that is not a comment.
pub fn parse(line: &str) -> Option<Operation> {
    let fields: Vec<&str> = line.split(',').collect();
    let [
        kind,
        pid,
        node,
        queue,
        hsa_queue,
        index,
        name,
        object,
        start,
        end,
        start_ticks,
        end_ticks,
        bytes,
        signal,
    ] = fields.try_into().ok()?;
    let hex = |s: &str| u64::from_str_radix(s.strip_prefix("0x")?, 16).ok();
    Some(Operation {
        kind: kind.to_owned(),
        pid: pid.parse().ok()?,
        node: node.parse().ok()?,
        queue: queue.parse().ok()?,
        hsa_queue: if hsa_queue.is_empty() { None } else { Some(hsa_queue.parse().ok()?) },
        index: index.parse().ok()?,
        name: name.to_owned(),
        kernel_object: hex(object)?,
        start_ns: start.parse().ok()?,
        end_ns: end.parse().ok()?,
        start_ticks: start_ticks.parse().ok()?,
        end_ticks: end_ticks.parse().ok()?,
        bytes: bytes.parse().ok()?,
        signal: hex(signal)?,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_are_read_back() {
        let o = parse("dispatch,7,1,2,0,41,add_one,0x7f00c0,10,20,1,2,0,0x80").unwrap();
        assert_eq!((o.kind.as_str(), o.pid, o.hsa_queue, o.index), ("dispatch", 7, Some(0), 41));
        assert_eq!((o.kernel_object, o.start_ns, o.end_ns, o.signal), (0x7f00c0, 10, 20, 0x80));
        assert_eq!(parse("copy,7,1,3,,24,H2D,0x0,1,2,1,2,4000,0x0").unwrap().hsa_queue, None);
        assert!(parse("dispatch,7,1").is_none());
    }
}
