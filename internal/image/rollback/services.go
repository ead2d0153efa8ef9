package rollback

import (
	"fmt"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// Services makes what captures and rolls back: each ends what the other has left open. Others of
// config is set here.
func Services(config capture.Config) (*capture.Service, *Service) {
	var captures *capture.Service
	var rollbacks *Service
	config.Others = func(kind string) (workflow.Workflow, error) {
		switch kind {
		case capture.Kind:
			return captures.Workflow(), nil
		case Kind:
			return rollbacks.Workflow(), nil
		}
		return nil, fmt.Errorf("unknown kind of record %q", kind)
	}
	captures, rollbacks = capture.New(config), New(config)
	return captures, rollbacks
}
