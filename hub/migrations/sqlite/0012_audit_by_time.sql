-- Lines of the audit log that may go, wherever they stand: a clock that was ahead leaves lines that stay for longer before others.
CREATE INDEX audit_by_time ON audit (at);
