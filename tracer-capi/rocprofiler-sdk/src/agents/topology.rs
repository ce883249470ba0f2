//! The driver's topology: CPUs and GPUs, as files below `/sys/class/kfd/kfd/topology/nodes`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Where it is.
pub const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The content of a file `properties`, in lines of a name and a number.
#[derive(Default, Debug)]
pub struct Properties(HashMap<String, u64>);

impl Properties {
    /// None if the file cannot be read, or is empty: it is for a process that may not use a GPU.
    fn read(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("properties")).ok()?;
        let property = |line: &str| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.trim().parse().ok()?))
        };
        let properties: HashMap<_, _> = text.lines().filter_map(property).collect();
        (!properties.is_empty()).then_some(Self(properties))
    }

    /// A property; 0 if there is none, or if it is too large for that.
    pub fn get<T: TryFrom<u64> + Default>(&self, name: &str) -> T {
        self.0.get(name).and_then(|&number| T::try_from(number).ok()).unwrap_or_default()
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    pub number: u32,
    pub gpu_id: u64,
    /// The driver's name of a GPU.
    pub name: String,
    pub properties: Properties,
    pub mem_banks: Vec<Properties>,
    pub caches: Vec<Properties>,
    pub io_links: Vec<Properties>,
}

impl Node {
    /// The number that the driver gives a GPU for good; 0 if it gives none.
    pub fn unique_id(&self) -> u64 {
        self.properties.get("unique_id")
    }

    /// A GPU of which no more is known.
    #[cfg(test)]
    pub fn gpu(number: u32, unique_id: u64) -> Self {
        let properties = Properties(HashMap::from([("unique_id".to_owned(), unique_id)]));
        let (mem_banks, caches, io_links) = Default::default();
        Self { number, gpu_id: 0, name: String::new(), properties, mem_banks, caches, io_links }
    }
}

/// The nodes that can be read, in the order of their numbers. None where there is no driver.
pub fn read(nodes: &Path) -> Vec<Node> {
    let mut all: Vec<Node> =
        directories(nodes).into_iter().filter_map(|n| node(nodes, n)).collect();
    all.sort_by_key(|node| node.number);
    all
}

fn node(nodes: &Path, number: u32) -> Option<Node> {
    let directory = nodes.join(number.to_string());
    let word =
        |file| fs::read_to_string(directory.join(file)).unwrap_or_default().trim().to_owned();
    let parts = |name: &str| -> Vec<Properties> {
        let directory = directory.join(name);
        let mut numbers = directories(&directory);
        numbers.sort_unstable();
        let read = |number: u32| Properties::read(&directory.join(number.to_string()));
        numbers.into_iter().filter_map(read).collect()
    };
    Some(Node {
        number,
        gpu_id: word("gpu_id").parse().unwrap_or(0),
        name: word("name"),
        properties: Properties::read(&directory)?,
        mem_banks: parts("mem_banks"),
        caches: parts("caches"),
        io_links: parts("io_links"),
    })
}

/// The numbers that are names of directories inside of one.
fn directories(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
