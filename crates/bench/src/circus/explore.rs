use super::world::*;
use pelago_proto::deliver::*;
use pelago_random::Random;
use std::time::Duration;

fn mixed(
    policy: Policy,
    extent: u32,
    rates: &[f64],
    n: usize,
    over: f64,
    file: u64,
    mem: u64,
    disk: f64,
    files: u32,
) -> Scenario {
    let mut random = Random::new(1);
    let mut options = Options::new(policy, mem);
    if extent != 1 << 20 {
        options.extent_bytes = extent;
        options.extents = (mem / extent as u64) as usize;
    }
    let downloads = (0..n)
        .map(|i| Download {
            file: i as u32 % files,
            arrives: Duration::from_secs_f64(random.below(1_000_000) as f64 / 1e6 * over),
            rate: rates[(i / files as usize) % rates.len()],
            repeats_until: Duration::ZERO,
        })
        .collect();
    Scenario { options, disk_rate: disk, file_bytes: file, downloads }
}

#[test]
fn explore() {
    let c4 = Policy::Circus(Circus { region_bytes: 4 << 20, ..Circus::default() });
    let c16 = Policy::Circus(Circus::default());
    let m = 1 << 20;
    for (name, rates, n, over, file, mem, files) in [
        ("std equal", &[5e6][..], 30, 80.0, 128 * m, 12 * m, 1),
        ("std 4.5", &[5e6, 5e6 / 4.5], 30, 80.0, 128 * m, 12 * m, 1),
        ("std 4.5 slow", &[5e6, 5e6 / 4.5], 30, 360.0, 128 * m, 12 * m, 1),
        ("std 30", &[5e6, 5e6 / 30.0], 30, 80.0, 128 * m, 12 * m, 1),
        ("std 30 slow", &[5e6, 5e6 / 30.0], 30, 2400.0, 128 * m, 12 * m, 1),
        ("std three", &[193e3, 1.25e6, 5.625e6], 30, 72.0, 128 * m, 12 * m, 1),
        ("std three slow", &[193e3, 1.25e6, 5.625e6], 30, 2080.0, 128 * m, 12 * m, 1),
        ("20 5MB", &[5e6], 20, 60.0, 512 * m, 48 * m, 1),
        ("50 5MB", &[5e6], 50, 60.0, 512 * m, 48 * m, 1),
        ("100 5MB", &[5e6], 100, 60.0, 512 * m, 48 * m, 1),
        ("200 1MB", &[1e6], 200, 60.0, 512 * m, 48 * m, 1),
        ("400 1MB", &[1e6], 400, 60.0, 512 * m, 48 * m, 1),
        ("4.5 50", &[5e6, 5e6 / 4.5], 50, 60.0, 512 * m, 48 * m, 1),
        ("16 files", &[1e6], 160, 60.0, 512 * m, 48 * m, 16),
    ] {
        println!("{name}");
        for (p, policy, extent) in [
            ("seq", Policy::Sequential, m as u32),
            ("circus", if file == 128 * m { c4 } else { c16 }, m as u32),
            ("circus64", if file == 128 * m { c4 } else { c16 }, 65536),
            ("relevance", Policy::Relevance, m as u32),
        ] {
            if p == "seq" && n > 50 || files > 1 && p == "seq" {
                continue;
            }
            if std::env::var("ONLY").is_ok_and(|it| it != p) {
                continue;
            }
            let began = std::time::Instant::now();
            let s = mixed(policy, extent, rates, n, over, file, mem, 20e6, files);
            let o = simulate(&s, (Duration::ZERO, Duration::ZERO));
            let (mean, med, max) = o.slowdown();
            let f = file as f64;
            println!(
                "  {p:10} passes {:6.2} P {:6.2} ratio {:5.2} miss {:5.3} slow {mean:5.2} {med:5.2} {max:5.2} n {} {:?}",
                o.read_bytes as f64 / f,
                o.pass_bytes / f,
                o.read_bytes as f64 / o.pass_bytes,
                o.read_bytes as f64 / o.sent_bytes as f64,
                o.slowdowns.len(),
                began.elapsed()
            );
        }
    }
}
