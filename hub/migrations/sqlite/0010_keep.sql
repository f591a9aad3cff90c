-- What went wrong last with the agent of a cluster.
CREATE INDEX audit_of_faults ON audit (cluster, id)
WHERE action IN ('FrameRefused', 'SessionEnded', 'SessionLost', 'SessionRefused', 'StatusRefused');

-- Responses that may go some day, by the time of their end.
CREATE INDEX responses_to_prune ON responses (json_extract(progress, '$.completed_at'))
WHERE phase NOT IN ('Pending', 'Running') AND followed = 0 AND follow_up = 0 AND watched = 0;

-- The audit log is append-only but for its oldest lines: those from before this time may be removed.
CREATE TABLE audit_floor (
    one    INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    before INTEGER NOT NULL
) STRICT;

DROP TRIGGER audit_is_append_only_delete;

CREATE TRIGGER audit_is_append_only_delete BEFORE DELETE ON audit
WHEN OLD.at >= coalesce((SELECT before FROM audit_floor), -9223372036854775808)
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
