//! Prints what primitive work costs here, as lines of a machine file.

fn main() -> std::io::Result<()> {
    for cost in highorder_sim::calibrate::measure()? {
        println!("{} = {{ ns = {:.1}, source = \"measured: {}\" }}", cost.name, cost.ns, cost.how);
    }
    Ok(())
}
