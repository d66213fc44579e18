// check-dashboards FILE...: reads each as a Grafana dashboard by Grafana's own types, which know the fields of a dashboard, its variables, and the panels and
// queries of the kinds that come with Grafana. A field that is unknown, missing, or of another type is told with its path; then it exits with 1.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var strict, board dashboard.Dashboard
	// It answers an empty list of errors, and leaves panels out, where nothing is wrong: what it has read is not used.
	if err := strict.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return err
	}
	return board.Validate()
}

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s:\n%v\n", path, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
