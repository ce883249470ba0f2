//! The file that `ROCP_INPUT` names: the domains that are traced, and the only functions of them that are.
//!
//! ```text
//! <trace name="HIP"><parameters api="hipMalloc, hipFree"></parameters></trace>
//! ```
//!
//! It is read as AMD's tool reads it: several elements may stand side by side, a `#` at the begin of a line begins a
//! remark, and values of attributes need no quotes. rocprof writes `<metric name=SQ_WAVES ></metric>`.

use roxmltree::{Document, Node};

/// The traces that a file asks for. Functions by name; none: all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Input {
    /// Marks and ranges.
    pub roctx: bool,
    /// Calls of HSA.
    pub hsa: Option<Vec<String>>,
    /// Copies of HSA.
    pub gpu: bool,
    /// Calls of HIP, and its work.
    pub hip: Option<Vec<String>>,
}

/// The reason for which a file is not understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no XML.
    #[error("{0}")]
    NoXml(#[from] roxmltree::Error),
    /// A trace of what?
    #[error("a trace has no name")]
    NoName,
    /// Something in a trace that has no meaning there.
    #[error("in the trace {name:?} there is <{tag}>, and only <parameters> has a meaning there")]
    NotSupported {
        /// The trace.
        name: String,
        /// The element in it.
        tag: String,
    },
}

impl Input {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let without_remarks: Vec<&str> =
            text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let elements = without_remarks.join("\n");
        // A declaration may only be at the very begin.
        let elements = match elements.trim_start().strip_prefix("<?xml") {
            Some(declaration) => declaration.split_once("?>").map_or("", |(_, rest)| rest),
            None => &elements,
        };
        let text = format!("<top>{elements}</top>");
        let lenient;
        let document = match Document::parse(&text) {
            Ok(document) => document,
            Err(error) => {
                lenient = quoted(&text);
                Document::parse(&lenient).map_err(|_| error)?
            }
        };
        let mut input = Self::default();
        let traces = document.root_element().children().filter(|node| node.has_tag_name("trace"));
        for trace in traces {
            let name = trace.attribute("name").ok_or(Error::NoName)?;
            let functions = functions(name, trace)?;
            match name {
                "rocTX" => input.roctx = true,
                "HSA" => input.hsa = Some(functions),
                "GPU" => input.gpu = true,
                "HIP" => input.hip = Some(functions),
                _ => {}
            }
        }
        Ok(input)
    }
}

/// The text with quotes around the values of attributes that have none.
fn quoted(text: &str) -> String {
    let ends = |character: char| character.is_whitespace() || character == '>';
    let quote = |tag: &str| {
        let mut parts = tag.split('=');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let value = part.trim_start();
            out.push('=');
            match value.find(ends).map(|end| value.split_at(end)) {
                Some((bare, rest)) if !value.starts_with(['"', '\'']) => {
                    out.push_str(&format!("\"{bare}\"{rest}"));
                }
                _ => out.push_str(part),
            }
        }
        out
    };
    text.split_inclusive('>').map(quote).collect()
}

/// The functions that a trace names.
fn functions(name: &str, trace: Node<'_, '_>) -> Result<Vec<String>, Error> {
    let Some(parameters) = trace.children().find(Node::is_element) else { return Ok(Vec::new()) };
    let tag = parameters.tag_name().name();
    if tag != "parameters" {
        return Err(Error::NotSupported { name: name.into(), tag: tag.into() });
    }
    let names = parameters.attribute("api").unwrap_or_default();
    let names = names.split([',', ' ', '\t', '\n']).filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_name_what_is_wanted() {
        let text = "# what rocprof writes\n\
            <trace name=\"HIP\"><parameters api=\"hipFree, hipMalloc,hipMemcpy\"></parameters></trace>\n\
            <trace name=\"rocTX\"></trace>\n<trace name=\"GPU\"/>";
        let names = ["hipFree", "hipMalloc", "hipMemcpy"].map(str::to_owned).to_vec();
        let expected = Input { roctx: true, hsa: None, gpu: true, hip: Some(names) };
        assert_eq!(Input::parse(text).unwrap(), expected);
        let all = "<?xml version=\"1.0\"?>\n<trace name=\"HSA\"></trace>";
        assert_eq!(Input::parse(all).unwrap(), Input { hsa: Some(vec![]), ..Input::default() });
        for nothing in ["", "<metric name=\"x\"/>", "<trace name=\"KFD\"/>"] {
            assert_eq!(Input::parse(nothing).unwrap(), Input::default(), "{nothing}");
        }
    }

    #[test]
    fn values_need_no_quotes() {
        let text = "<metric name=SQ_WAVES,GRBM_COUNT ></metric>\n\
            <trace name=HIP><parameters api = \"hipFree\" ></parameters></trace>";
        let hip = Some(vec!["hipFree".to_owned()]);
        assert_eq!(Input::parse(text).unwrap(), Input { hip, ..Input::default() });
        let in_quotes = "<metric name=\"A\" expr=\"a=b\"/><trace name=\"GPU\"/>";
        assert_eq!(Input::parse(in_quotes).unwrap(), Input { gpu: true, ..Input::default() });
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (text, says) in [
            ("<trace name=\"HIP\">", "top"),
            ("<trace><parameters/></trace>", "a trace has no name"),
            ("<trace name=\"HIP\"><range/></trace>", "in the trace \"HIP\" there is <range>"),
        ] {
            let error = Input::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
