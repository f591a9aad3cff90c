-- The branch of the group that a change was decided for, by which its members are found.
ALTER TABLE intents ADD COLUMN group_branch TEXT;

CREATE INDEX intents_of_group ON intents (group_branch) WHERE group_branch IS NOT NULL;
