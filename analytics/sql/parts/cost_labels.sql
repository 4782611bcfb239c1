-- The labels of a cost report ({by}), and the start of a request's period (Unix s). `tag:` in {by} is the value of the
-- tag {tag}, `tags` all tags of a request together.
    if(has({by:Array(String)}, 'tenant'), tenant, '') AS tenant_label,
    if(has({by:Array(String)}, 'team'), team, '') AS team_label,
    if(has({by:Array(String)}, 'project'), project, '') AS project_label,
    if(has({by:Array(String)}, 'key'), key_id, '') AS key_label,
    if(has({by:Array(String)}, 'user'), end_user, '') AS user_label,
    if(has({by:Array(String)}, 'model'), model, '') AS model_label,
    if(has({by:Array(String)}, 'provider'), provider, '') AS provider_label,
    if(has({by:Array(String)}, 'adapter'), adapter, '') AS adapter_label,
    if(has({by:Array(String)}, 'prompt'), prompt_name, '') AS prompt_label,
    if(has({by:Array(String)}, 'prompt_version'), prompt_version, '') AS prompt_version_label,
    if(has({by:Array(String)}, 'price'), price_version, '') AS price_label,
    if(has({by:Array(String)}, 'operation'), operation, '') AS operation_label,
    if(has({by:Array(String)}, 'session'), conversation_id, '') AS session_label,
    if(has({by:Array(String)}, 'repo'), tags['repo'], '') AS repo_label,
    if(has({by:Array(String)}, 'branch'), tags['branch'], '') AS branch_label,
    if(has({by:Array(String)}, 'pr'), tags['pr'], '') AS pr_label,
    if(has({by:Array(String)}, 'agent'), tags['agent'], '') AS agent_label,
    if(
        has({by:Array(String)}, 'tool'),
        if(operation = 'execute_tool', model, arrayStringConcat(arraySort(arrayDistinct(tools)), ',')),
        ''
    ) AS tool_label,
    if(has({by:Array(String)}, 'tag:'), tags[{tag:String}], '') AS tag_label,
    if(
        has({by:Array(String)}, 'tags'),
        arrayStringConcat(arraySort(arrayMap(pair -> concat(pair.1, '=', pair.2), CAST(tags, 'Array(Tuple(String, String))'))), ','),
        ''
    ) AS tags_label,
    toInt64(roundDown(toUnixTimestamp(toDateTime(started_at, 'UTC')), {starts:Array(UInt32)})) AS period_start
