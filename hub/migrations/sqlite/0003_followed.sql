-- Responses whose pull request waits for people.
ALTER TABLE responses ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;

UPDATE responses SET followed = 1
WHERE phase = 'Succeeded'
    AND EXISTS (
        SELECT 1 FROM json_each(progress, '$.conditions') AS one
        WHERE json_extract(one.value, '$.kind') = 'PullRequest' AND json_extract(one.value, '$.reason') = 'Open'
    )
    AND id IN (SELECT response FROM intents WHERE provider != 'noop');

CREATE INDEX responses_followed ON responses (cluster, uid) WHERE followed = 1;
