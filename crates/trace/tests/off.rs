//! Spans without a layer that wants them. In a process of its own: levels are the process's.

use pelago_trace::RequestSpan;

#[test]
fn nothing_is_described_if_no_layer_wants_spans() {
    let span = RequestSpan::begin(|| unreachable!("no layer wants it"));
    assert_eq!(span.in_scope(|| 1), 1);
    assert_eq!(RequestSpan::current().in_scope(|| 2), 2);
}
