//! The admin API and nabuctl against a real hub; agents are played by the tests themselves.

mod access;
mod backup;
mod bed;
mod budgets;
mod check;
mod clusters;
mod completion;
mod dry_run;
mod errors;
mod filters;
mod forges;
mod grpcurl;
mod keys;
mod nabuctl;
mod operations;
mod output;
mod paging;
mod responses;
mod retention;
mod retried;
mod revoked;
