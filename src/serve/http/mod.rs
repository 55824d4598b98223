//! Reading requests and formatting answers, for every address.

pub mod body;
pub mod problem;
pub mod request;
pub mod response;
