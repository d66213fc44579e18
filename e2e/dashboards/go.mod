// Grafana's types of dashboards.
module fusionllm.io/e2e/dashboards

go 1.24.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
