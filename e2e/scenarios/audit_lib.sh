# What operators have asked of API servers, by the servers' audit logs, and which of their rights that takes. Sourced by scenario_lib.sh.

# operator_requests CLUSTER: a line for each request of any operator there, a watch that has begun among them:
#   TIME VERB RESOURCE NAMESPACE CODE INSTANCE
# NAMESPACE is - for all of them and for what is in none; CODE is the answer's, or terminating; INSTANCE is the process, as it is named in the
# Lease that it leads by.
operator_requests() {
  awk '
    function text(where, key) {
      return match(where, "\"" key "\":\"[^\"]*\"") ? substr(where, RSTART + length(key) + 4, RLENGTH - length(key) - 5) : "-"
    }
    # The pod of `helm test` is the same program, by an account of its own.
    /"userAgent":"fusion-operator\// && !/"username":"system:serviceaccount:[^"]*-test"/ {
      agent = text($0, "userAgent")
      if (!match($0, /"objectRef":\{[^}]*\}/)) next
      object = substr($0, RSTART, RLENGTH)
      code = match($0, /"code":[0-9]+/) ? substr($0, RSTART + 7, RLENGTH - 7) : "-"
      # Allowed, and refused all the same: nothing is made in a namespace that goes.
      if (code == 403 && /because it is being terminated/) code = "terminating"
      resource = text(object, "resource")
      if (text(object, "subresource") != "-") resource = resource "/" text(object, "subresource")
      print text($0, "requestReceivedTimestamp"), text($0, "verb"), resource, text(object, "namespace"), code, agent_instance(agent)
    }
    function agent_instance(agent) { sub(/.* /, "", agent); return agent }
  ' "$state_root/$1/logs/audit.log"
}

# operator_writes CLUSTER [SINCE [UNTIL]]: the lines of those that write, times as the log has them. Renewals of the Lease by which an operator
# leads are left out: somebody has to lead at rest, too.
operator_writes() {
  operator_requests "$1" | awk -v since="${2:-}" -v until="${3:-9999}" '
    $2 ~ /^(create|update|patch|delete|deletecollection)$/ && $3 != "leases" && $1 >= since && $1 <= until'
}
# As audit logs have it.
audit_time() { date --utc +%Y-%m-%dT%H:%M:%S.%6NZ; }

# ---- rights ----
# Those that the chart gives an operator on its hub or in a member: "VERB RESOURCE WHERE", where WHERE is all (namespaces), jobs (their
# namespaces) or own (the operator's). rights_granted hub|member
rights_granted() {
  helm_in "$hub" template fusion "$source_folder/helm/fusionllm" --set role="$1" --show-only templates/rbac.yaml |
    # shellcheck disable=SC2016
    kubectl_of "$hub" create --dry-run=client --filename - --output go-template='{{$name := .metadata.name}}{{range .rules}}{{$rule := .}}{{range .resources}}
      {{- $resource := .}}{{range $rule.verbs}}{{.}} {{$resource}} {{$name}}{{"\n"}}{{end}}{{end}}{{end}}' |
    sed -E 's/ fusion-fusionllm-watch$/ all/; s/ fusion-fusionllm-work$/ jobs/; s/ fusion-fusionllm-own$/ own/' | sort -u
}
# rights_used CLUSTER: "VERB RESOURCE WHERE" of what was asked for and not refused. Applying what was not there is creating, too. What one may do
# oneself, every account may ask (system:basic-user).
rights_used() {
  operator_requests "$1" | awk '
    $5 == 401 || $5 == 403 || $3 == "selfsubjectaccessreviews" { next }
    {
      where = $4 == "-" ? "all" : $4 == "fusionllm" ? "own" : "jobs"
      print $2, $3, where
      if ($2 == "patch" && $5 == 201) print "create", $3, where
    }' | sort -u
}
# Where scenarios leave what they have seen of rights, for rights.sh: used.hub.SCENARIO, used.member.SCENARIO, granted.hub, granted.member.
rights_folder=$build_folder/e2e/rights

# keep_rights: before the release goes, whose rights go a moment before its operator does; once in a scenario. Fails where something was asked
# for that the chart would not have allowed, whoever was asked: most scenarios reach members as their administrators. Clusters that were given
# show no audit logs.
rights_kept=
keep_rights() {
  local cluster role refused beyond scenario
  if given; then return; fi
  scenario=$(basename "$0" .sh)
  rights_kept=yes
  mkdir -p "$rights_folder"
  for role in hub member; do
    rights_granted $role >"$rights_folder/granted.$role"
    [ -s "$rights_folder/granted.$role" ] || fail "the chart gives no rights to a $role"
    : >"$rights_folder/used.$role.$scenario"
  done
  for cluster in "${hubs[@]}" "${members[@]}"; do
    role=member
    if [[ " ${hubs[*]} " == *" $cluster "* ]]; then role=hub; fi
    refused=$(operator_requests "$cluster" | awk '$5 == 403 { print $2, $3, $4 }' | sort -u)
    [ -z "$refused" ] || fail "$cluster has refused the operator: $refused"
    rights_used "$cluster" >>"$rights_folder/used.$role.$scenario"
    # What is given for all namespaces is given in each.
    beyond=$(rights_used "$cluster" | awk 'NR == FNR { granted[$0]; next }
      !($0 in granted) && !($1 " " $2 " all" in granted)' "$rights_folder/granted.$role" -)
    [ -z "$beyond" ] || fail "in $cluster, a $role, the operator has used rights that the chart does not give: $beyond"
  done
}
