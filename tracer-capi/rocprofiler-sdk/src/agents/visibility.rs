//! GPUs that the runtimes have: variables of the environment hide others.

use super::topology::Node;

/// The variables, as the runtimes read them.
#[derive(Default)]
pub struct Variables {
    /// `ROCR_VISIBLE_DEVICES`: an empty one hides every GPU.
    pub rocr: Option<String>,
    /// `HIP_VISIBLE_DEVICES`, or `CUDA_VISIBLE_DEVICES` where that is empty or not set. It counts the GPUs that the HSA
    /// runtime has, in its order.
    pub hip: Option<String>,
}

impl Variables {
    pub fn of_environment() -> Self {
        let value = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let of_hip = |name| value(name).filter(|value| !value.is_empty());
        Self {
            rocr: value("ROCR_VISIBLE_DEVICES"),
            hip: of_hip("HIP_VISIBLE_DEVICES").or_else(|| of_hip("CUDA_VISIBLE_DEVICES")),
        }
    }

    /// The numbers of the nodes that the HSA runtime has, of these GPUs, and of those the ones that HIP has, each in the
    /// runtime's order.
    pub fn visible(&self, gpus: &[&Node]) -> [Vec<u32>; 2] {
        let hsa = chosen(self.rocr.as_deref(), gpus, Runtime::Hsa);
        let hip = chosen(self.hip.as_deref(), &hsa, Runtime::Hip);
        [hsa, hip].map(|gpus| gpus.iter().map(|gpu| gpu.number).collect())
    }
}

/// A runtime, which reads lists in a way of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Hsa,
    Hip,
}

/// The GPUs that a list names, in its order: all if there is no list. The first part that names none ends it, and for
/// HSA also the first that names one again.
fn chosen<'a>(list: Option<&str>, gpus: &[&'a Node], runtime: Runtime) -> Vec<&'a Node> {
    let Some(list) = list else { return gpus.to_vec() };
    let mut chosen: Vec<&Node> = Vec::new();
    for part in list.split(',') {
        let Some(gpu) = named(part, gpus, runtime) else { break };
        if !chosen.iter().any(|known| known.number == gpu.number) {
            chosen.push(gpu);
        } else if runtime == Runtime::Hsa {
            break;
        }
    }
    chosen
}

/// The GPU of this place among all, or the one of this UUID: `GPU-` and hexadecimal digits. HSA takes the begin of one if it
/// is of no other, and ignores case and spaces; HIP takes a part of one, and the first that has it.
fn named<'a>(part: &str, gpus: &[&'a Node], runtime: Runtime) -> Option<&'a Node> {
    let mut identified = gpus.iter().filter(|gpu| gpu.unique_id() != 0);
    let uuid = |gpu: &Node| format!("GPU-{:016x}", gpu.unique_id());
    match runtime {
        Runtime::Hsa => {
            let part = part.trim().to_uppercase();
            if part.starts_with("GPU-") {
                let mut those =
                    identified.filter(|gpu| uuid(gpu).to_uppercase().starts_with(&part));
                return those.next().filter(|_| part.len() > 4 && those.next().is_none()).copied();
            }
            gpus.get(part.parse::<usize>().ok()?).copied()
        }
        Runtime::Hip if part.contains("GPU-") => {
            identified.find(|gpu| uuid(gpu).contains(part)).copied()
        }
        Runtime::Hip => {
            let place = part.parse::<usize>().ok().filter(|place| place.to_string() == part)?;
            gpus.get(place).copied()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_have_the_gpus_that_variables_name() {
        let nodes =
            [1, 2, 3].map(|number| Node::gpu(number, 0xe300_0000_0000_0000 | u64::from(number)));
        let nodes: Vec<&Node> = nodes.iter().collect();
        let visible = |rocr: Option<&str>, hip: Option<&str>| {
            let variables =
                Variables { rocr: rocr.map(str::to_owned), hip: hip.map(str::to_owned) };
            variables.visible(&nodes)
        };
        let all = vec![1, 2, 3];
        assert_eq!(visible(None, None), [all.clone(), all.clone()]);
        assert_eq!(visible(Some("2,0"), None), [vec![3, 1], vec![3, 1]]);
        // HIP counts those that HSA has.
        assert_eq!(visible(Some("2,0"), Some("1")), [vec![3, 1], vec![1]]);
        assert_eq!(visible(Some(""), Some("0")), [vec![], vec![]]);
        assert_eq!(visible(None, Some("-1")), [all.clone(), vec![]]);
        // What names nothing ends the list.
        assert_eq!(visible(Some("1,7,0"), Some("0,x,0")), [vec![2], vec![2]]);
        assert_eq!(visible(Some("1,1,0"), None)[0], [2]);
        assert_eq!(visible(None, Some("1,1,0"))[1], [2, 1]);
        assert_eq!(visible(Some("GPU-E300000000000002, 0"), None)[0], [2, 1]);
        // It may be the begin of one, and not of several.
        assert_eq!(visible(Some("GPU-e3"), Some("GPU-"))[0], []);
        assert_eq!(visible(None, Some("GPU-e300000000000003"))[1], [3]);
        assert_eq!(visible(None, Some("gpu-e300000000000003"))[1], []);
        // HIP wants plain numbers.
        assert_eq!(
            [visible(None, Some("1, 0"))[1].clone(), visible(None, Some("01"))[1].clone()],
            [vec![2], vec![]]
        );
    }
}
