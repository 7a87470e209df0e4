//! A download from a server without blocks: the bytes come in order, and a cut download goes on at
//! its end if the server supports ranges.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED};
use pelago_wire::limits::ENTITY_TAG_BYTES;

use crate::conditions::text;
use crate::fetch::connect::Incomplete;
use crate::fetch::error::FetchError;
use crate::fetch::event::FetchEvent;
use crate::fetch::run::{Done, Restart, Run, Step, is_strong};
use crate::fetch::state::{Form, StateHead};
use crate::fetch::violation::ServerViolation;

/// Receives the whole file.
pub(super) async fn whole(run: &mut Run<'_>, answer: Incomplete) -> Result<Step, FetchError> {
    let headers = answer.headers();
    let size = text(headers, &CONTENT_LENGTH).and_then(|it| it.parse().ok());
    let tag = validator(headers);
    if let Some(head) = &run.head
        && run.work.length()? > 0
    {
        let is_other = head.form == Form::Blocks || !head.tag.is_empty() && head.tag != tag;
        run.begin_again(match is_other {
            true => Restart::Changed("the server sends another file"),
            false => Restart::Cut,
        })?;
    }
    run.begin(StateHead { url: run.url.text.clone(), tag, form: Form::Plain, size })?;
    receive(run, answer, 0, size).await
}

/// Receives the rest of the file.
pub(super) async fn rest(run: &mut Run<'_>, answer: Incomplete) -> Result<Step, FetchError> {
    let have = run.work.length()?;
    let size = run.head.as_ref().filter(|head| head.form == Form::Plain).map(|head| head.size);
    let range = text(answer.headers(), &CONTENT_RANGE).and_then(parse_range);
    match (size, range) {
        (Some(size), Some((first, total))) if first == have => {
            if size.is_some_and(|size| size != total) {
                return Ok(Step::Restart(Restart::Changed("the file has another size")));
            }
            receive(run, answer, have, Some(total)).await
        }
        _ => run.wrong(ServerViolation::Range { expected: have }.into()),
    }
}

/// Handles the response to a range that begins at or beyond the end of the file.
pub(super) fn behind_end(run: &mut Run<'_>, range: Option<&str>) -> Result<Step, FetchError> {
    let have = run.work.length()?;
    let total = range.and_then(|it| it.strip_prefix("bytes */")).and_then(|it| it.parse().ok());
    if total == Some(have) {
        return Ok(Step::Done(Done { bytes: have, root: None, is_confirmed: false }));
    }
    Ok(Step::Restart(Restart::Changed("the file is shorter")))
}

async fn receive(
    run: &mut Run<'_>,
    mut answer: Incomplete,
    mut have: u64,
    total: Option<u64>,
) -> Result<Step, FetchError> {
    (run.observe)(FetchEvent::Began { have, total, verified: false });
    loop {
        match answer.next().await {
            Ok(Some(bytes)) => {
                run.work.write(have, &bytes)?;
                have += bytes.len() as u64;
                run.gained += bytes.len() as u64;
                (run.observe)(FetchEvent::Gained { have });
            }
            Ok(None) if total.is_none_or(|total| total == have) => {
                return Ok(Step::Done(Done { bytes: have, root: None, is_confirmed: false }));
            }
            Ok(None) => return Ok(Step::Retry("the answer was cut".to_owned())),
            Err(why) => return Ok(Step::Retry(why)),
        }
    }
}

/// Returns the validator of the version for an If-Range: a strong tag, or else the date; empty if
/// there is neither.
///
/// A date is a strong validator only if the response is at least a second younger (RFC 9110,
/// 8.8.2.2 and 13.1.5): a file can change twice in one second. A minute is required here, because
/// the server's clock may differ from the clock of its disk.
fn validator(headers: &HeaderMap) -> String {
    let tag = text(headers, &ETAG);
    if let Some(tag) = tag.filter(|tag| is_strong(tag)) {
        return tag.to_owned();
    }
    let modified = text(headers, &LAST_MODIFIED).filter(|it| it.len() <= ENTITY_TAG_BYTES);
    let time = |text: Option<&str>| text.and_then(|it| httpdate::parse_http_date(it).ok());
    let age = match (time(modified), time(text(headers, &DATE))) {
        (Some(modified), Some(sent)) => sent.duration_since(modified).unwrap_or_default(),
        _ => Duration::ZERO,
    };
    // With a tag, if only a weak one, a date is no validator of this request.
    let is_strong = tag.is_none() && age >= OLD_ENOUGH;
    modified.filter(|_| is_strong).unwrap_or_default().to_owned()
}

/// The age from which on the date of a change names one version.
const OLD_ENOUGH: Duration = Duration::from_secs(60);

/// Reads `bytes FIRST-LAST/TOTAL`.
fn parse_range(header: &str) -> Option<(u64, u64)> {
    let (range, total) = header.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _last) = range.split_once('-')?;
    Some((first.parse().ok()?, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_names_a_version_once_it_is_old() {
        let of = |pairs: &[(hyper::header::HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(name, hyper::header::HeaderValue::from_static(value));
            }
            validator(&headers)
        };
        let modified = "Wed, 25 Nov 2026 19:00:00 GMT";
        let sent = |at| [(LAST_MODIFIED, modified), (DATE, at)];
        for early in [modified, "Wed, 25 Nov 2026 19:00:59 GMT", "Wed, 25 Nov 2026 18:00:00 GMT"] {
            assert_eq!(of(&sent(early)), "", "{early}");
        }
        assert_eq!(of(&sent("Wed, 25 Nov 2026 19:01:00 GMT")), modified);
        assert_eq!(of(&[(LAST_MODIFIED, modified)]), "");
        let later = (DATE, "Wed, 25 Nov 2026 20:00:00 GMT");
        assert_eq!(of(&[(LAST_MODIFIED, modified), later, (ETAG, "W/\"t\"")]), "");
        assert_eq!(of(&[(LAST_MODIFIED, modified), (ETAG, "\"t\"")]), "\"t\"");
    }

    #[test]
    fn a_content_range_says_where_it_begins() {
        assert_eq!(parse_range("bytes 10-59/100"), Some((10, 100)));
        for other in ["bytes */100", "bytes 10-59/*", "lines 1-2/3", ""] {
            assert_eq!(parse_range(other), None, "{other}");
        }
    }
}
