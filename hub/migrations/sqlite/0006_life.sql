-- Responses that have ended, with something left to be done about their pull request.
ALTER TABLE responses ADD COLUMN follow_up INTEGER NOT NULL DEFAULT 0;

CREATE INDEX responses_follow_up ON responses (cluster, uid) WHERE follow_up = 1;

-- The branch of a followed response, by which webhooks name it.
ALTER TABLE responses ADD COLUMN followed_branch TEXT;

UPDATE responses SET followed_branch = (
    SELECT json_extract(intents.intent, '$.branch') FROM intents WHERE intents.response = responses.id
)
WHERE followed = 1;

CREATE INDEX responses_followed_branch ON responses (followed_branch) WHERE followed = 1;

-- Responses that have ended, and whose EventResponse is watched all the same.
ALTER TABLE responses ADD COLUMN watched INTEGER NOT NULL DEFAULT 0;

CREATE INDEX responses_watched ON responses (cluster, uid) WHERE watched = 1;
