//! Responses to requests that fail: a status and a line of text for each error.

use hyper::StatusCode;
use pelago_proto::deliver::DeliverError;
use pelago_wire::{Code, Error, PinError};

use crate::request_body::NoBody;
use crate::target::BadTarget;
use crate::tree::Refusal;

/// The response to a request that fails: a status, and one line for a person.
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String);

impl From<BadTarget> for Failure {
    fn from(bad: BadTarget) -> Self {
        match bad {
            BadTarget::NotAPath => Self(StatusCode::BAD_REQUEST, "this is no path".to_owned()),
            BadTarget::TooLong => {
                Self(StatusCode::URI_TOO_LONG, "this path is too long".to_owned())
            }
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let (status, text) = match refusal {
            Refusal::NotFound => (StatusCode::NOT_FOUND, "there is no such file"),
            Refusal::Forbidden => {
                (StatusCode::FORBIDDEN, "the user of this server may not read it")
            }
            Refusal::HasAcl => {
                (StatusCode::FORBIDDEN, "it has an access control list, which this server ignores")
            }
            Refusal::LeadsOut => (StatusCode::FORBIDDEN, "a symbolic link leads out of this tree"),
            Refusal::TooManyLinks => (StatusCode::NOT_FOUND, "there are too many symbolic links"),
            Refusal::Failed(Error {
                code: code @ (Code::Unavailable | Code::HostDown | Code::TimedOut),
            }) => (StatusCode::SERVICE_UNAVAILABLE, code.says()),
            Refusal::Failed(Error { code }) => (StatusCode::INTERNAL_SERVER_ERROR, code.says()),
        };
        Self(status, text.to_owned())
    }
}

impl From<PinError> for Failure {
    fn from(error: PinError) -> Self {
        let text = match error {
            PinError::Failed(Error { code: Code::Elsewhere }) => {
                let text = "this file has its home in another office, or its bytes are there";
                return Self(StatusCode::NOT_IMPLEMENTED, text.to_owned());
            }
            PinError::Written | PinError::Changed => "this file is being written",
            PinError::Failed(Error { code: Code::TooManyOpen }) => "too many files are being sent",
            PinError::Failed(error) => return Refusal::from(error).into(),
        };
        Self(StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
    }
}

impl From<NoBody> for Failure {
    fn from(no_body: NoBody) -> Self {
        let (status, text) = match no_body {
            NoBody::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the have-map is too long"),
            NoBody::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the have-map came too slowly"),
            NoBody::Cut => (StatusCode::BAD_REQUEST, "the have-map was cut"),
        };
        Self(status, text.to_owned())
    }
}

impl From<DeliverError> for Failure {
    fn from(error: DeliverError) -> Self {
        let status = match error {
            DeliverError::TooManyFiles | DeliverError::TooManyClients => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            DeliverError::TooScattered => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}
