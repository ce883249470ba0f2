//! What must be true of an outcome.

use std::collections::{BTreeMap, BTreeSet};

use emulated_gpu::truth::Operation;

use crate::outcome::{Call, CalledBack, FIRST_AGENT, Outcome};

/// "within 1 µs".
const NEAR_NS: u64 = 1000;

pub fn is_near(recorded: (u64, u64), operation: &Operation) -> bool {
    let (begin_ns, end_ns) = recorded;
    begin_ns.abs_diff(operation.start_ns).max(end_ns.abs_diff(operation.end_ns)) <= NEAR_NS
}

impl Outcome {
    /// Each id of a record or of a callback was retired, behind all of these, and no other one.
    pub fn expect_retirements(&self) {
        assert!(!self.ids.is_empty());
        for (id, known) in &self.ids {
            let retired_ns =
                known.retired_ns.unwrap_or_else(|| panic!("{id} was not retired: {known:?}"));
            assert!(known.records > 0, "nothing was recorded of {id}, which was retired");
            assert!(retired_ns + NEAR_NS >= known.end_ns, "{id}: {known:?}");
        }
    }

    /// What the GPU did of a kind, in the order of its begin. Not what the runtime does for itself, which nobody sees.
    pub fn did(&self, kind: &str) -> Vec<&Operation> {
        const OF_THE_RUNTIME: [&str; 3] = ["CopyAligned", "CopyMisaligned", "Fill"];
        let is_meant = |operation: &&Operation| {
            operation.kind == kind && !OF_THE_RUNTIME.contains(&operation.name.as_str())
        };
        let mut did: Vec<&Operation> = self.truth.iter().filter(is_meant).collect();
        did.sort_by_key(|operation| (operation.hsa_queue, operation.start_ns));
        did
    }

    /// Each kernel that the GPU ran is told of once, where and when it ran; returns how often each ran, by name.
    pub fn expect_all_kernels(&mut self) -> BTreeMap<String, usize> {
        self.kernels.sort_by_key(|kernel| (kernel.queue, kernel.begin_ns));
        let did = self.did("dispatch");
        assert_eq!(self.kernels.len(), did.len(), "{self:#?}");
        let (mut numbers, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (kernel, operation) in self.kernels.iter().zip(did) {
            assert_eq!(Some(kernel.queue), operation.hsa_queue, "{kernel:?}: {operation:?}");
            assert!(
                is_near((kernel.begin_ns, kernel.end_ns), operation),
                "{kernel:?}: {operation:?}"
            );
            assert_eq!(kernel.agent, FIRST_AGENT + u64::from(operation.node), "{kernel:?}");
            // One number is of one kernel.
            let name = numbers.entry(kernel.kernel).or_insert_with(|| operation.name.clone());
            assert_eq!(*name, operation.name, "{kernel:?}");
            *names.entry(operation.name.clone()).or_default() += 1;
        }
        let dispatches: BTreeSet<u64> = self.kernels.iter().map(|kernel| kernel.dispatch).collect();
        assert!(dispatches.iter().copied().eq(1..=self.kernels.len() as u64), "{dispatches:?}");
        self.expect_ids();
        names
    }

    pub fn expect_all_copies(&mut self) {
        self.copies.sort_by_key(|copy| copy.begin_ns);
        let mut did = self.did("copy");
        did.sort_by_key(|operation| operation.start_ns);
        assert_eq!(self.copies.len(), did.len(), "{self:#?}");
        for (copy, operation) in self.copies.iter().zip(did) {
            assert!(is_near((copy.begin_ns, copy.end_ns), operation), "{copy:?}: {operation:?}");
            let kind = match &operation.name[..] {
                "H2D" => 2,
                "D2H" => 3,
                "D2D" => 4,
                other => panic!("{other}"),
            };
            assert_eq!((copy.operation, copy.bytes), (kind, operation.bytes), "{operation:?}");
            // The host is another agent than the GPU.
            assert_eq!(copy.to != copy.from, kind != 4, "{copy:?}");
            assert!(copy.to >= FIRST_AGENT && copy.from >= FIRST_AGENT, "{copy:?}");
        }
        self.expect_ids();
    }

    /// Each call of a runtime's functions that the program says that it has made is recorded once. Others may be: those that
    /// HIP makes of HSA.
    pub fn expect_every_call(&mut self, of: &str, but: &[&str]) {
        // From ROCm 6 on the runtime copies code inside of it, and waits for that, by functions of its own.
        let is_freeze = |call: &&Call| call.name == "hsa_executable_freeze";
        let freezes: Vec<&Call> = self.calls.iter().filter(is_freeze).collect();
        let is_of_a_freeze = |call: &Call| {
            freezes.iter().any(|freeze| {
                let is_inside = freeze.begin_ns < call.begin_ns && call.end_ns <= freeze.end_ns;
                freeze.thread == call.thread && is_inside
            })
        };
        let mut recorded = BTreeMap::<&str, u64>::new();
        for call in self.calls.iter().filter(|call| !is_of_a_freeze(call)) {
            *recorded.entry(call.name).or_default() += 1;
        }
        let mut compared = 0;
        for (function, count) in self.counts.iter().filter(|(name, _)| name.contains(of)) {
            if !but.contains(&function.as_str()) {
                let times = recorded.get(function.as_str());
                assert_eq!(times, Some(count), "{function}: {recorded:?} {:?}", self.counts);
                compared += 1;
            }
        }
        assert!(compared > 2, "{:?}", self.counts);
        self.expect_nested();
    }

    /// Each kernel that ran is one of a code object that was loaded, by its id and by its name; all are unloaded at last.
    pub fn expect_names(&self) {
        let mut names = BTreeMap::<&str, i64>::new();
        for kernel in &self.kernels {
            let symbol = &self.symbols[&kernel.kernel];
            assert_eq!(self.objects[&symbol.object].0, kernel.agent, "{kernel:?}");
            *names.entry(symbol.name.as_str()).or_default() += 1;
        }
        for operation in self.did("dispatch") {
            *names.entry(operation.name.as_str()).or_default() -= 1;
        }
        assert!(names.values().all(|&difference| difference == 0), "{names:?}");
        assert!(self.objects.values().all(|&(_, is_unloaded)| is_unloaded), "{:?}", self.objects);
        assert!(self.symbols.values().all(|symbol| symbol.is_unloaded), "{:?}", self.symbols);
    }

    /// The calls that callbacks were told of are those that were recorded, and have ended.
    pub fn expect_callbacks_of_all(&self) {
        assert_eq!(self.called_back.len(), self.calls.len(), "{self:#?}");
        let called_back: BTreeMap<u64, &CalledBack> =
            self.called_back.values().map(|call| (call.correlation_id, call)).collect();
        for call in &self.calls {
            let called =
                called_back.get(&call.correlation_id).unwrap_or_else(|| panic!("{call:?}"));
            let of_callback = (called.name, called.external_id, called.thread, called.exits);
            assert_eq!(of_callback, (call.name, call.external_id, call.thread, true), "{call:?}");
            assert_eq!(called.ancestor, call.ancestor, "{call:?}");
        }
    }

    /// The results of a function's calls.
    pub fn results(&self, function: &str) -> BTreeSet<u64> {
        let calls = self.called_back.values().filter(|call| call.name == function);
        calls.map(|call| call.result).collect()
    }

    /// The values of an argument of a function's calls, in order.
    pub fn arguments(&self, function: &str, name: &str) -> Vec<&str> {
        let calls = self.called_back.values().filter(|call| call.name == function);
        let mut values: Vec<&str> = calls.map(|call| call.arguments[name].as_str()).collect();
        values.sort_unstable();
        values
    }

    /// Calls of a thread come one after the other or one inside of the other, and have ids of their own in that order. The
    /// external id is that of the process.
    pub fn expect_nested(&mut self) {
        self.calls.sort_by_key(|call| (call.thread, call.correlation_id));
        let (mut ids, mut open) = (BTreeSet::new(), Vec::<&Call>::new());
        for call in &self.calls {
            assert!(call.correlation_id > 0 && ids.insert(call.correlation_id), "twice: {call:?}");
            assert!(call.begin_ns <= call.end_ns && call.external_id == 77, "{call:?}");
            assert!(call.thread > 0, "{call:?}");
            while let Some(outer) =
                open.pop_if(|outer| outer.thread != call.thread || outer.end_ns <= call.begin_ns)
            {
                assert!(outer.thread != call.thread || outer.begin_ns <= call.begin_ns);
            }
            let around = open.last().map_or(0, |outer| outer.correlation_id);
            assert_eq!(call.ancestor, if cfg!(feature = "v1") { around } else { 0 }, "{call:?}");
            if let Some(outer) = open.last() {
                let is_inside = outer.begin_ns <= call.begin_ns && call.end_ns <= outer.end_ns;
                assert!(is_inside, "{call:?}: {outer:?}");
            }
            open.push(call);
        }
    }

    /// No call is traced: each operation has an id of its own. The external id is that of the process.
    fn expect_ids(&self) {
        let kernels = self.kernels.iter().map(|k| (k.correlation_id, k.external_id, k.thread));
        let copies = self.copies.iter().map(|c| (c.correlation_id, c.external_id, c.thread));
        let mut ids = BTreeSet::new();
        for (correlation_id, external_id, thread) in kernels.chain(copies) {
            assert!(correlation_id > 0 && ids.insert(correlation_id), "{correlation_id} twice");
            assert!(external_id == 77 && thread > 0, "{external_id}, {thread}");
        }
    }
}
