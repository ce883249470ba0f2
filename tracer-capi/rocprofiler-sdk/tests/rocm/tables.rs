//! Tables of runtimes that tools get.

use crate::kinds::{HSA, ROCTX};
use crate::scene::{LOADERS, scene};

/// Functions of the tool's own see each call that ours behind them record.
#[test]
fn rocm_tools_put_functions_of_their_own_into_tables() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut command = scene.ranges(loader, "5");
        command.env("WATCH_KINDS", format!("{HSA},{ROCTX}")).env("WATCH_TABLES", "1");
        let outcome = scene.run_command(command);
        let recorded = |name| outcome.calls.iter().filter(|call| call.name == name).count();
        let [agents, marks] = outcome.passed;
        assert!(agents > 0 && marks > 0, "{:?}", outcome.tables);
        assert_eq!([recorded("hsa_agent_get_info"), recorded("roctxMarkA")], [agents, marks]);
        // Those of HIP come from runtimes that have them.
        let mut others = outcome.tables.clone();
        others.retain(|table| !matches!(table, 2 | 4));
        others.sort_unstable();
        assert_eq!(others, [1, 8, 16, 32]);
    }
}
