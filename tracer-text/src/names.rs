//! Names of kernels.

/// The name of a kernel in `hcc_ops_trace.txt`: truncated as the file plugin does, never empty, never with a colon,
/// which would end the name there.
pub fn operation_name(kernel: &str) -> String {
    match truncate_name(kernel) {
        "" => kernel.replace(':', "_"),
        name => name.to_owned(),
    }
}

/// The bare name in a demangled one: `Foo<int>::foo(a[], int (int))` → `foo`. From the right, text in brackets is
/// skipped, then the name goes to the next space or colon.
pub fn truncate_name(name: &str) -> &str {
    let mut depth = 0_u32;
    let mut pair = ('\0', '\0');
    let mut end = name.len();
    for (at, c) in name.char_indices().rev() {
        if depth > 0 {
            depth += u32::from(c == pair.1);
            depth -= u32::from(c == pair.0);
        } else {
            pair = match c {
                ')' => ('(', ')'),
                '>' => ('<', '>'),
                ']' => ('[', ']'),
                ' ' => pair,
                _ => break,
            };
            depth = u32::from(c != ' ');
        }
        end = at;
    }
    let bare = name.get(..end).unwrap_or_default();
    bare.rsplit([' ', ':']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_truncated_as_by_the_file_plugin() {
        for (name, bare) in [
            ("Foo<int>::foo(a[], int (int))", "foo"),
            ("void kernel<float, 4>(float*)", "kernel"),
            ("kernel", "kernel"),
            ("k (int) ", "k"),
            ("ns::Op<A>::operator()<B>(C) const", "const"),
            ("(anonymous namespace)::k(int)", "k"),
            ("(int)", ""),
            ("", ""),
            ("a>b)", ""),
            ("größe(int)", "größe"),
        ] {
            assert_eq!(truncate_name(name), bare, "{name}");
        }
        assert_eq!(operation_name("(a::b)"), "(a__b)");
    }
}
