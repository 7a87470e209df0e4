//! Two sites and their folders: what is lost with the power, or with an answer, makes neither of
//! them look old, and of a folder and its copy only one goes on.

use pelago_wire::OlderFolder::{OfAnswerer, OfAsker};

use super::*;

/// A site's end of the pair: what it knows, what its folder has, and what of that is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct End {
    pair: Pair,
    written: SiteTokensRow,
    safe: SiteTokensRow,
}

impl End {
    fn write(&mut self) {
        self.written = self.pair.row;
    }

    fn sync(&mut self) {
        self.safe = self.written;
    }

    /// Ends the run; what was written is there.
    fn kill(&mut self) {
        // A start makes everything safe.
        self.safe = self.written;
        self.pair = Pair::stored(self.safe);
    }

    /// Ends the run with what is safe alone.
    fn lose_power(&mut self) {
        self.written = self.safe;
        self.kill();
    }
}

/// The steps of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Asked,
    Given,
    Answered,
    Taken,
    TakenSafely,
    Kept,
    KeptSafely,
}

const STEPS: [Step; 7] = [
    Step::Asked,
    Step::Given,
    Step::Answered,
    Step::Taken,
    Step::TakenSafely,
    Step::Kept,
    Step::KeptSafely,
];

/// A site that holds tokens, and one that gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct World {
    holder: End,
    giver: End,
    /// The number of tokens that were made.
    made: u8,
}

impl World {
    /// Renews the token up to and with a step; then the line is cut.
    fn renew_until(&mut self, last: Step) -> Result<(), OlderFolder> {
        let shown = self.holder.pair.shown().held;
        let goes_on = |step: Step| (last as u8) > step as u8;
        self.made += 1;
        let token = self.giver.pair.give(shown, [self.made; 16])?;
        self.giver.write();
        if !goes_on(Step::Asked) {
            return Ok(());
        }
        self.giver.sync();
        if !goes_on(Step::Given) {
            return Ok(());
        }
        // The answer has arrived.
        if !goes_on(Step::Answered) {
            return Ok(());
        }
        assert!(self.holder.pair.take(token), "the last one");
        self.holder.write();
        if !goes_on(Step::Taken) {
            return Ok(());
        }
        self.holder.sync();
        self.holder.pair.is_safe(token);
        if !goes_on(Step::TakenSafely) {
            return Ok(());
        }
        self.giver.pair.keep(token);
        self.giver.write();
        if goes_on(Step::Kept) {
            self.giver.sync();
        }
        Ok(())
    }

    fn renew(&mut self) {
        self.renew_until(Step::KeptSafely).unwrap();
    }

    /// Returns whose folder is older when the holder connects, and when the giver does.
    fn hellos(&self) -> [Option<OlderFolder>; 2] {
        [
            self.giver.pair.judge(&self.holder.pair.shown()),
            self.holder.pair.judge(&self.giver.pair.shown()),
        ]
    }

    fn assert_honest(&self, what: &dyn std::fmt::Debug) {
        assert_eq!(self.hellos(), [None; 2], "{what:?}: {self:?}");
    }
}

/// The ends of a run.
const ENDS: [fn(&mut End); 3] = [|_| {}, End::kill, End::lose_power];

/// Up to three renewals that each stop after any step; after each one the run of either end is
/// over, or goes on.
#[test]
fn no_loss_makes_an_honest_site_look_old() {
    let mut worlds = vec![World::default()];
    for round in 0..3 {
        let mut next = Vec::new();
        for world in &worlds {
            for step in STEPS {
                for [of_holder, of_giver] in ENDS.iter().flat_map(|of| ENDS.map(|by| [*of, by])) {
                    let mut world = *world;
                    let result = world.renew_until(step);
                    assert_eq!(result, Ok(()), "{round} {step:?} {world:?}");
                    of_holder(&mut world.holder);
                    of_giver(&mut world.giver);
                    world.assert_honest(&(round, step));
                    next.push(world);
                }
            }
        }
        next.dedup();
        worlds = next;
    }
    // Each goes on, as if nothing had been lost.
    for mut world in worlds {
        world.renew();
        world.assert_honest(&"at the end");
        assert_eq!(world.holder.pair.safe, world.giver.pair.row.given);
    }
}

#[test]
fn an_answer_that_comes_late_takes_no_token_back() {
    let mut world = World::default();
    world.renew_until(Step::Given).unwrap();
    let late = world.giver.pair.row.given;
    world.renew();
    world.renew();
    let now = world.holder.pair;
    assert!(!world.holder.pair.take(late));
    world.holder.pair.is_safe(late);
    assert_eq!(world.holder.pair, now);
    assert!(!world.giver.pair.keep(late), "said late");
    world.assert_honest(&"afterwards");
}

/// A folder that is put back from a copy of any moment is noticed once its original has had another
/// token.
#[test]
fn an_older_folder_is_refused_in_either_role() {
    for step in STEPS {
        let mut world = World::default();
        world.renew();
        world.renew_until(step).unwrap();
        let mut old = world;
        old.holder.lose_power();
        old.giver.lose_power();
        world.renew();
        world.renew();
        let back = World { holder: old.holder, ..world };
        assert_eq!(back.hellos(), [Some(OfAsker), Some(OfAnswerer)], "{step:?}: the holder");
        let mut asking = back;
        assert_eq!(asking.renew_until(Step::Asked), Err(OfAsker));
        let back = World { giver: old.giver, ..world };
        assert_eq!(back.hellos()[0], Some(OfAnswerer), "{step:?}: the giver");
        let mut asking = back;
        assert_eq!(asking.renew_until(Step::Asked), Err(OfAnswerer));
    }
}

/// Of a folder and its copy, the one that is given the next token goes on.
#[test]
fn of_a_folder_and_its_copy_one_goes_on() {
    for step in STEPS {
        let mut world = World::default();
        world.renew();
        world.renew_until(step).unwrap();
        let mut copy = world.holder;
        copy.lose_power();
        for copy_first in [false, true] {
            let mut world = world;
            let other = match copy_first {
                true => std::mem::replace(&mut world.holder, copy),
                false => copy,
            };
            // The first renewal may give both the same one: the answer may have been lost.
            world.renew();
            world.renew();
            world.assert_honest(&(step, copy_first));
            let beside = World { holder: other, ..world };
            assert_eq!(beside.hellos()[0], Some(OfAsker), "{step:?} {copy_first}");
        }
    }
}

/// The giver and its copy give different tokens, so the holder cannot go on with both.
#[test]
fn of_a_giver_and_its_copy_one_goes_on() {
    let mut world = World::default();
    world.renew();
    let copy = world.giver;
    world.renew();
    world.made += 100;
    let mut beside = World { giver: copy, ..world };
    assert_eq!(beside.hellos()[0], Some(OfAnswerer));
    // The copy gives a token of the same number by itself.
    beside.giver.pair.give(beside.giver.pair.row.given, [99; 16]).unwrap();
    assert_eq!(beside.hellos()[0], Some(OfAnswerer), "another one with the same number");
}

/// A folder from before there were tokens, and one whose row is damaged.
#[test]
fn a_folder_without_tokens_and_a_damaged_row_are_taken() {
    let mut world = World::default();
    world.assert_honest(&"before the first token");
    world.renew();
    world.assert_honest(&"after it");
    world.renew();
    for [is_holder, is_giver] in [[true, false], [false, true], [true, true]] {
        let mut world = world;
        for (is_damaged, end) in [(is_holder, &mut world.holder), (is_giver, &mut world.giver)] {
            if is_damaged {
                *end = End::default();
                end.pair = Pair::stored(SiteTokensRow::LOST);
                end.write();
                end.sync();
            }
        }
        world.assert_honest(&"damaged");
        world.renew_until(Step::Given).unwrap();
        world.holder.lose_power();
        world.giver.lose_power();
        world.assert_honest(&"damaged, and an answer was lost");
        world.renew();
        let old = world.holder;
        world.renew();
        world.assert_honest(&"afterwards");
        let back = World { holder: old, ..world };
        assert_eq!(back.hellos()[0], Some(OfAsker), "{is_holder} {is_giver}");
    }
}
