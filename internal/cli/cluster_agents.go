package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/controller"
	"github.com/ortet/ortet/internal/elastic"
	"github.com/ortet/ortet/internal/fleet"
)

// An agentView is one line of ortet cluster agents.
type agentView struct {
	Pool     string           `json:"pool"`
	Instance string           `json:"instance"`         // "agents_3"
	Node     string           `json:"node,omitempty"`   // "" where no Node is this instance
	Power    string           `json:"power,omitempty"`  // "running", "deallocated"
	Verdict  string           `json:"verdict"`          // as ortet nodes has it
	Reason   string           `json:"reason,omitempty"` // of a boot that did not end well
	Image    string           `json:"image,omitempty"`  // what it was made of
	Created  time.Time        `json:"created,omitzero"` // of the machine
	ID       fleet.ResourceID `json:"id"`
}

func newClusterAgents(c *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "agents",
		Short: "Show the machines of the pools beside their Nodes",
		Long: `agents lists the instances of the cluster's scale sets, each with its Node, the
verdict on its boot and the image that it was made of. ortet nodes NAME shows why one
did not come up.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, group, o, err := c.site(cmd.Context())
			if err != nil {
				return err
			}
			s, err := o.survey(cmd.Context(), nil, []fleet.ResourceID{group}, controller.Deadlines{}, "")
			if err != nil {
				return err
			}
			return c.printAgents(cluster, group, s)
		},
	}
}

func (c *clusterOptions) printAgents(cluster *elastic.Cluster, group fleet.ResourceID, s survey) error {
	agents := []agentView{}
	for _, n := range s.stories {
		if n.Gone || n.Boot == nil || !n.Instance.Group().Equal(group) {
			continue
		}
		agents = append(agents, agentView{
			Pool: n.Pool.Name(), Instance: n.Name, Node: n.Node, Power: string(n.Boot.Power), Verdict: string(n.State), Reason: n.Reason(),
			Image: n.Boot.Image, Created: n.Created, ID: n.Instance,
		})
	}
	err := c.print(map[string]any{"agents": agents, "notes": nonNil(s.notes), "unread": nonNil(s.unread)}, func(w io.Writer) {
		if len(agents) == 0 {
			say(w, "Cluster %s has no agents. See ortet cluster scale.", cluster.Metadata.Name)
			return
		}
		rows := [][]string{{"INSTANCE", "NODE", "POWER", "VERDICT", "IMAGE", "AGE"}}
		for _, a := range agents {
			verdict := a.Verdict
			if a.Reason != "" {
				verdict += " " + a.Reason
			}
			rows = append(rows, []string{a.Instance, dash(a.Node), dash(a.Power), verdict, dash(imageTitle(a.Image)), age(a.Created, s.now)})
		}
		fit(rows, resultWidth, []shrink{{4, 12}, {3, 16}, {1, 12}, {0, 10}})
		writeRows(w, rows)
	})
	c.tellNotes(s)
	for _, u := range s.unread {
		paragraph(c.process.Err, columnsOf(c.process.Err), "note: ", "  ", u)
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

// site is the cluster of the file as it is reached: its compute group's id, and the
// options with the context of its kubeconfig.
func (c *clusterOptions) site(ctx context.Context) (*elastic.Cluster, fleet.ResourceID, *options, error) {
	cluster, err := c.read()
	if err != nil {
		return nil, "", nil, err
	}
	_, subscription, err := c.azure(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	group := fleet.ResourceID("/subscriptions/" + subscription + "/resourceGroups/" + cluster.Spec.Groups.Compute)
	o := *c.options
	if o.context == "" {
		o.context = cluster.Metadata.Name
	}
	if _, err := o.kubernetes(); err != nil {
		return nil, "", nil, fmt.Errorf("%w; ortet cluster kubeconfig gets the one of cluster %s", err, cluster.Metadata.Name)
	}
	return cluster, group, &o, nil
}
