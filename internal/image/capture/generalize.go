package capture

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const podEvery = 5 * time.Second // how often the pod on the workbench is read

// generalize has a pod on the workbench remove the donor's identity from the copy. A
// pod that is lost leaves a copy in an unknown state: the next one gets a new copy.
func (c *capture) generalize(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	name, err := workflow.Before(ctx, p, func() (string, error) {
		node, err := c.Cluster.Node(ctx, s.Bench.Node)
		if err == nil && node.BootID != s.Bench.BootID {
			err = errors.New("its node booted again, with the copy attached")
		}
		return plan.JobName(s.Pool, plan.CaptureName(c.Now())), err
	})
	if err != nil {
		return done, c.onBench(ctx, err)
	}
	starting := "the pod is starting on " + s.Bench.Node
	if s.Pod != name {
		key, err := readKey(s.Key)
		if err = cmp.Or(err, p.Save(ctx)); err != nil {
			return done, err
		}
		job := c.job(name, s.Bench.Node, "generalize", c.name, c.begun, "--host", "/host", "--lun", fmt.Sprint(s.Bench.LUN), "--seal-to",
			base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()))
		if s.Online != "" {
			job.Command = append(job.Command, "--online", s.Online)
		}
		job.Labels["ortet.io/capture"], job.Deadline = c.name, time.Hour
		if err = c.Cluster.StartJob(ctx, job); err == nil {
			c.set(func(s *state) { s.Pod = name })
		}
		return workflow.In(podEvery, "%s", starting), c.onBench(ctx, err)
	}
	pod, err := c.Cluster.Job(ctx, name)
	if err != nil {
		return done, err
	}
	progress, output, unread := report.Read(pod.Output)
	switch {
	case !pod.Exists:
		return done, c.onBench(ctx, workflow.Replan("the pod is gone"))
	case pod.Done && output != nil && output.Capture == c.name:
		p.Progress(100, "removed %d paths; %s", output.Removed, cmp.Or(output.OS, "an unknown system"))
		return done, c.disk().Problems(*output, len(output.Findings)).Err("generalize", "the copy of the disk")
	case pod.Done && pod.ExitCode == report.ExitFlags:
		return done, fmt.Errorf("ortet-node generalize does not take its flags: is %s of this version? it printed: %s", c.Image, report.Tail(pod.Output))
	case pod.Done && unread != nil:
		return done, fmt.Errorf("cannot read the report of ortet-node generalize: is %s of this version? %w", c.Image, unread)
	case pod.Done:
		return done, c.onBench(ctx, workflow.Replan("the pod ended with code %d and no report (%s); it printed: %s", pod.ExitCode,
			cmp.Or(pod.Why, "no reason given"), report.Tail(pod.Output)))
	case p.Since()%time.Minute < 2*podEvery: // Kubernetes takes less than 10 minutes to evict the pods of a node that is not Ready
		err = c.benchLost(ctx, 10*time.Minute)
	}
	return workflow.In(podEvery, "%s", cmp.Or(pod.Why, progress, starting)), err
}

// job returns a pod that runs ortet-node generalize.
func (c *capture) job(name, node, component, capture string, at time.Time, flags ...string) cluster.Job {
	command := append([]string{
		"ortet-node", "generalize", "--capture", capture, "--donor", c.req.Node, "--at", at.UTC().Format(time.RFC3339), "--bootstrap", c.req.Bootstrap,
		fmt.Sprintf("--accept-pool-credentials=%t", c.req.AcceptPoolCredentials),
		fmt.Sprintf("--remove-secrets=%t", c.req.RemoveSecrets),
		fmt.Sprintf("--scan-images=%t", c.req.ScanImages),
		// Always: an earlier ortet-node, which cannot take away what a donor has, refuses the flag.
		"--tune", wire.JoinTunings(c.req.Tune),
	}, flags...)
	for _, address := range c.get().Addresses {
		command = append(command, "--donor-address", address)
	}
	for _, path := range c.req.AcceptSecrets {
		command = append(command, "--accept-secret", path)
	}
	return cluster.Job{
		Name: name, Node: node, Image: c.Image, PullSecret: c.PullSecret, Command: command,
		Labels: jobLabels(component),
	}
}

func jobLabels(component string) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": component}
}

// deletePod lets the pod end by itself, since it writes. It leaves a pod to its node if
// that does not answer: its kubelet ends it when it is back, and Kubernetes when the node is deleted.
func (c *capture) deletePod(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var name string
	if there, err := p.Saved(&name); !there || err != nil {
		return done, err
	}
	if gone, err := c.Cluster.DeleteJob(ctx, name); gone || err != nil {
		return done, err
	}
	w := workflow.In(time.Second, "waiting for the end of pod %s", name)
	if p.Since() < 45*time.Second { // its grace period of 30 s among it
		return w, nil
	}
	node, err := c.Cluster.Node(ctx, c.get().Bench.Node)
	if fleet.IgnoreNotFound(err) != nil || node.Ready {
		return w, fleet.IgnoreNotFound(err)
	}
	p.Note("pod %s is deleted, and ends when node %s, which does not answer, is back or deleted", name, c.get().Bench.Node)
	return done, nil
}
