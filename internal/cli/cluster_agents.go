package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
)

func newClusterAgents(c *clusterOptions) *cobra.Command {
	cmd := clusterCommand("agents", "Show the machines of the pools beside their Nodes", `agents lists the instances of the cluster's scale sets, each with its Node, the
verdict on its boot and the image that it was made of. ortet nodes NAME shows why one
did not come up.`, func(ctx context.Context, _ []string) error {
		in, o, err := c.kubernetesSite(ctx)
		if err != nil {
			return err
		}
		s, err := o.survey(ctx, []fleet.ResourceID{in.group})
		if err != nil {
			return err
		}
		return c.printAgents(in, s)
	})
	c.takesForms(cmd, nameForm)
	return cmd
}

// kubernetesSite connects the cluster of the file with Azure, and gives the options with
// the context of its kubeconfig.
func (c *clusterOptions) kubernetesSite(ctx context.Context) (*site, *options, error) {
	in, err := c.connect(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	o := *c.options
	o.context = first(o.context, in.cluster.Metadata.Name)
	if _, err := o.kubernetes(); err != nil {
		return nil, nil, fmt.Errorf("%w; ortet cluster kubeconfig gets the one of cluster %s", err, in.cluster.Metadata.Name)
	}
	return in, &o, nil
}

// An agentView is one line of ortet cluster agents.
type agentView struct {
	Pool     string           `json:"pool"`
	Instance string           `json:"instance"`         // "agents_3"
	Node     string           `json:"node,omitempty"`   // "" where no Node is this instance
	Power    string           `json:"power,omitempty"`  // "running", "deallocated"
	Verdict  string           `json:"verdict"`          // as ortet nodes has it
	Reason   string           `json:"reason,omitempty"` // of a boot that did not end well
	Sure     string           `json:"confidence,omitempty"`
	Image    string           `json:"image,omitempty"`  // what it was made of
	Created  time.Time        `json:"created,omitzero"` // of the machine
	ID       fleet.ResourceID `json:"id"`
}

func (c *clusterOptions) printAgents(in *site, s survey.Survey) error {
	agents, rows := []agentView{}, [][]string{{"INSTANCE", "NODE", "POWER", "VERDICT", "IMAGE", "AGE"}}
	for _, n := range s.Stories {
		if n.Gone || n.Boot == nil || !n.Instance.Group().Equal(in.group) {
			continue
		}
		a := agentView{
			Pool: n.Pool.Name(), Instance: n.Name, Node: n.Node, Power: string(n.Boot.Power), Verdict: string(n.State), Reason: n.Reason(), Sure: string(n.Confidence()),
			Image: n.Boot.Image, Created: n.Created, ID: n.Instance,
		}
		agents = append(agents, a)
		rows = append(rows, cells(a.Instance, a.Node, a.Power, strings.TrimSpace(a.Verdict+" "+a.Reason), imageTitle(a.Image), age(a.Created, s.Now)))
	}
	var names []string
	for _, a := range agents {
		names = append(names, first(a.Node, string(a.ID)))
	}
	err := c.printNames(map[string]any{"agents": agents, "notes": nonNil(s.Notes), "unread": nonNil(s.Unread)}, names, func(w io.Writer) {
		if len(agents) == 0 {
			say(w, "Cluster %s has no agents. See ortet cluster scale.", in.cluster.Metadata.Name)
			return
		}
		writeTable(w, rows, shrink{4, 12}, shrink{3, 16}, shrink{1, 12}, shrink{0, 10})
	})
	c.tellNotes(s)
	for _, u := range s.Unread {
		c.note(u)
	}
	return err
}

// imageTitle is what tells images apart in a narrow column: a version's definition and
// number, or a Marketplace image's SKU and version.
func imageTitle(image string) string {
	if parts := strings.Split(image, ":"); len(parts) == 4 {
		return parts[2] + ":" + parts[3]
	}
	if id := fleet.ResourceID(image); id.Segment("versions") != "" {
		return id.Segment("images") + "/" + id.Name()
	}
	return image
}
