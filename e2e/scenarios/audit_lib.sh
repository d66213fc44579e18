# What operators have asked of API servers, by the servers' audit logs, and which of their rights that takes. Sourced by scenario_lib.sh.

# audit_log CLUSTER: all of it, in order. After 200 MB the API server goes on with another file, and keeps those before it.
audit_log() {
  local file files=()
  for file in "$state_root/$1/logs"/audit-*.log; do if [ -e "$file" ]; then files+=("$file"); fi; done
  cat "${files[@]}" "$state_root/$1/logs/audit.log"
}

# operator_requests CLUSTER: a line for each request of any operator there, a watch that has begun among them:
#   TIME VERB RESOURCE NAMESPACE CODE INSTANCE GROUP NAME
# NAMESPACE is - for all of them and for what is in none; CODE is the answer's, or terminating; INSTANCE is the process, as it is named in the
# Lease that it leads by; GROUP is the resource's, or core; NAME is the object's, or - for many.
operator_requests() {
  audit_log "$1" | awk '
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
      print text($0, "requestReceivedTimestamp"), text($0, "verb"), resource, text(object, "namespace"), code, agent_instance(agent), \
        text(object, "apiGroup") == "-" ? "core" : text(object, "apiGroup"), text(object, "name")
    }
    function agent_instance(agent) { sub(/.* /, "", agent); return agent }
  '
}

# operator_writes CLUSTER [SINCE [UNTIL]]: the lines of those that write, times as the log has them. Renewals of the Lease by which an operator
# leads are left out: somebody has to lead at rest, too.
operator_writes() {
  operator_requests "$1" | awk -v since="${2:-}" -v until="${3:-9999}" '
    $2 ~ /^(create|update|patch|delete|deletecollection)$/ && $3 != "leases" && $1 >= since && $1 <= until'
}
# pods_made CLUSTER JOB: "NAME=TIMES " of each Pod of the job's executors that an operator has made there, sorted; dry runs apart, in whichever
# order the log's lines have their fields.
pods_made() {
  audit_log "$1" | awk -v name="\"name\":\"$2-$1-[^\"]*\"" '
    /"userAgent":"fusion-operator\// && /"resource":"pods"/ && /"verb":"(create|patch)"/ && /"code":201/ && !/dryRun/ && match($0, name) {
      print substr($0, RSTART + 8, RLENGTH - 9) }' | sort | uniq -c | awk '{ print $2 "=" $1 }' | tr '\n' ' '
}
# As audit logs have it.
audit_time() { date --utc +%Y-%m-%dT%H:%M:%S.%6NZ; }

# ---- rights ----
# Those that the chart gives an operator on its hub or in a member: "VERB GROUP RESOURCE NAME WHERE", where NAME is - for objects of any name, and
# WHERE is all (namespaces), jobs (their namespaces) or own (the operator's). The account of serviceaccounts/token is left out, as fusionctl names
# it differently. rights_granted hub|member
rights_granted() {
  # shellcheck disable=SC2016
  local template='{{$role := .metadata.name}}{{range .rules}}{{$rule := .}}{{range .apiGroups}}{{$group := .}}{{range $rule.resources}}{{$resource := .}}
    {{- range $rule.verbs}}{{$right := printf "%s %s %s" . (or $group "core") $resource}}
      {{- range $rule.resourceNames}}{{$right}} {{.}} {{$role}}{{"\n"}}{{else}}{{$right}} - {{$role}}{{"\n"}}{{end}}{{end}}{{end}}{{end}}{{end}}'
  helm_in "$hub" template fusion "$source_folder/helm/fusionllm" --set role="$1",rbac.allNamespaces=true"$([ "$1" = member ] || echo ,operator.kueue.enabled=true)" --show-only templates/rbac.yaml |
    kubectl_of "$hub" create --dry-run=client --filename - --output go-template="$template" |
    sed -E 's/ fusion-fusionllm-watch$/ all/; s/ fusion-fusionllm-work$/ jobs/; s/ fusion-fusionllm-(own|renew)$/ own/; s/(serviceaccounts.token) [^ ]+/\1 -/' | sort -u
}
# rights_used CLUSTER: the same of what was asked for and not refused. Whoever creates names nothing, as far as rights go; applying what was not
# there is creating, too. What one may do oneself, every account may ask (system:basic-user).
rights_used() {
  operator_requests "$1" | awk '
    $5 == 401 || $5 == 403 || $3 == "selfsubjectaccessreviews" { next }
    {
      where = $4 == "-" ? "all" : $4 == "fusionllm" ? "own" : "jobs"
      print $2, $7, $3, $2 == "create" ? "-" : $8, where
      if ($2 == "patch" && $5 == 201) print "create", $7, $3, "-", where
    }' | sort -u
}
# allowed_by GRANTED: those of the rights in that file by which one may do what rights_used has; "beyond ..." of what no right is for. What is
# given for any name is given for each, and so with namespaces.
allowed_by() {
  awk '
    NR == FNR { granted[$0]; next }
    {
      allowed = 0
      for (of = 0; of < 4; ++of) {
        right = $1 " " $2 " " $3 " " (of % 2 ? $4 : "-") " " (of < 2 ? $5 : "all")
        if (right in granted) { print right; allowed = 1 }
      }
      if (!allowed) print "beyond", $0
    }' "$1" - | sort -u
}
# never_allowed: of lines of operator_requests, "VERB RESOURCE NAMESPACE" of what was refused for want of a right and at no time allowed. An API
# server that has just begun refuses what it allows as soon as it has read the roles.
never_allowed() {
  awk '
    { asked = $2 " " $7 " " $3 " " $4 " " $8 }
    $5 == 403 { refused[asked] = $2 " " $3 " " $4 }
    $5 ~ /^[0-9]+$/ && $5 != 401 && $5 != 403 && $5 < 500 { allowed[asked] }
    END { for (asked in refused) if (!(asked in allowed)) print refused[asked] }' | sort -u
}
# Where scenarios leave what they have seen of rights, for rights.sh: granted.hub, granted.member, and those of them that were of use,
# used.hub.SCENARIO, used.member.SCENARIO.
rights_folder=$build_folder/e2e/rights

# keep_rights: before the release goes, whose rights go a moment before its operator does; once in a scenario. Fails where something was asked
# for that the chart would not have allowed, whoever was asked: most scenarios reach members as their administrators. Clusters that were given
# show no audit logs.
rights_kept=
keep_rights() {
  local cluster role refused used beyond scenario
  if given; then return; fi
  scenario=$(basename "$0" .sh)
  rights_kept=yes
  mkdir -p "$rights_folder"
  for role in hub member; do
    # Another scenario may read it now.
    rights_granted $role >"$rights_folder/granted.$role.$scenario"
    [ -s "$rights_folder/granted.$role.$scenario" ] || fail "the chart gives no rights to a $role"
    mv "$rights_folder/granted.$role.$scenario" "$rights_folder/granted.$role"
    : >"$rights_folder/used.$role.$scenario"
  done
  for cluster in "${hubs[@]}" "${members[@]}"; do
    role=member
    if [[ " ${hubs[*]} " == *" $cluster "* ]]; then role=hub; fi
    refused=$(operator_requests "$cluster" | never_allowed)
    [ -z "$refused" ] || fail "$cluster has refused the operator: $refused"
    used=$(rights_used "$cluster" | allowed_by "$rights_folder/granted.$role")
    beyond=$(sed -n 's/^beyond //p' <<<"$used")
    echo "$used" >>"$rights_folder/used.$role.$scenario"
    [ -z "$beyond" ] || fail "in $cluster, a $role, the operator has used rights that the chart does not give: $beyond"
  done
}
