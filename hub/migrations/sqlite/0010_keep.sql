-- What went wrong last with the agent of a cluster.
CREATE INDEX audit_of_faults ON audit (cluster, id)
WHERE action IN ('FrameRefused', 'SessionEnded', 'SessionLost', 'SessionRefused', 'StatusRefused');
