-- Group keys of queries by the labels of `cost_labels`.
    tenant_label, team_label, project_label, key_label, user_label, model_label, provider_label, adapter_label,
    prompt_label, prompt_version_label, price_label, operation_label, session_label, repo_label, branch_label, pr_label,
    agent_label, tool_label, tag_label, tags_label, period_start
