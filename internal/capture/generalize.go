package capture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	podEvery   = 5 * time.Second // how often the pod is read
	benchEvery = time.Minute     // how often the workbench is read while its pod works
	// silentFor is how long its node may be NotReady then: longer than Kubernetes takes to
	// evict the pods of such a node.
	silentFor = 10 * time.Minute
	// podEnds is how long a deleted pod has before it is asked whether a kubelet is there
	// to end it, its grace period of 30 s among it.
	podEnds = 45 * time.Second
)

// generalize has a pod on the workbench remove the donor's identity from the copy. A
// pod that is lost leaves a copy in an unknown state: the next one gets a new copy.
func (c *capture) generalize(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	name, err := before(ctx, p, func() (string, error) {
		node, err := c.Cluster.Node(ctx, s.Bench.Node)
		if err == nil && node.BootID != s.Bench.BootID {
			err = errors.New("its node booted again, with the copy attached")
		}
		c.set(func(s *state) { s.Pods++ })
		return prototype.JobName(s.Pool, fmt.Sprintf("%s-%d", c.name, s.Pods+1)), err
	})
	if err == nil && s.Pod != name {
		if err = c.startPod(ctx, p, name); err == nil {
			return in(podEvery, "the pod is starting on %s", s.Bench.Node), nil
		}
	}
	if err != nil {
		return done, c.onBench(ctx, err)
	}
	pod, err := c.Cluster.Job(ctx, name)
	if err != nil {
		return done, err
	}
	progress, report := readOutput(pod.Output)
	switch {
	case !pod.Exists:
		return done, c.onBench(ctx, again("the pod is gone"))
	case pod.Done && report != nil && report.Capture == c.name:
		p.Progress(100, "removed %d paths; %s", report.Removed, first(report.OS, "an unknown system"))
		return done, Refuse("generalize", "the copy of the disk", c.diskProblems(*report, len(report.Findings)))
	case pod.Done && pod.ExitCode == 64:
		return done, fmt.Errorf("ortet-node generalize does not take its flags: is %s of this version? it printed: %s", c.Image, tail(pod.Output))
	case pod.Done:
		return done, c.onBench(ctx, again("the pod ended with code %d and no report (%s); it printed: %s", pod.ExitCode, first(pod.Why, "no reason given"), tail(pod.Output)))
	case p.Since()%benchEvery < 2*podEvery:
		err = c.benchLost(ctx, silentFor)
	}
	return in(podEvery, "%s", first(pod.Why, progress, "the pod is starting on "+s.Bench.Node)), err
}

func (c *capture) startPod(ctx context.Context, p *workflow.Pass, name string) error {
	s := c.get()
	key, err := readKey(s.Key)
	if err == nil {
		err = p.Save(ctx)
	}
	if err != nil {
		return err
	}
	job := c.job(name, s.Bench.Node, "generalize", c.name, c.begun, "--host", "/host", "--lun", strconv.Itoa(int(s.Bench.LUN)), "--seal-to", base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()))
	job.Labels["ortet.io/capture"] = c.name
	job.Deadline = time.Hour
	if err = c.Cluster.StartJob(ctx, job); err == nil {
		c.set(func(s *state) { s.Pod = name })
	}
	return err
}

// job gives a pod that runs ortet-node generalize.
func (c *capture) job(name, node, component, capture string, at time.Time, flags ...string) cluster.Job {
	command := append([]string{
		"ortet-node", "generalize", "--capture", capture, "--donor", c.req.Node, "--at", at.UTC().Format(time.RFC3339), "--bootstrap", c.req.Bootstrap,
	}, flags...)
	if ips := c.get().Addresses; len(ips) > 0 {
		command = append(command, "--donor-address", strings.Join(ips, ","))
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"--accept-pool-credentials", c.req.AcceptPoolCredentials}, {"--remove-secrets", c.req.RemoveSecrets}, {"--scan-images", c.req.ScanImages}} {
		if f.on {
			command = append(command, f.name)
		}
	}
	for _, path := range c.req.AcceptSecrets {
		command = append(command, "--accept-secret", path)
	}
	return cluster.Job{
		Name: name, Node: node, Image: c.Image, PullSecret: c.PullSecret, Command: command,
		Labels: map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": component},
	}
}

// deletePod leaves a pod to its node if that does not answer: its kubelet ends it when
// it is back, and Kubernetes when the node is deleted.
func (c *capture) deletePod(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var name string
	if there, err := p.Saved(&name); !there || err != nil {
		return done, err
	}
	w, err := c.endPod(ctx, name)
	if err != nil || w.In == 0 || p.Since() < podEnds {
		return w, err
	}
	node, err := c.Cluster.Node(ctx, c.get().Bench.Node)
	if fleet.IgnoreNotFound(err) != nil || node.Ready {
		return w, fleet.IgnoreNotFound(err)
	}
	p.Note("pod %s is deleted, and ends when node %s, which does not answer, is back or deleted", name, c.get().Bench.Node)
	return done, nil
}

// endPod asks for the end of a pod, and waits for it.
func (c *capture) endPod(ctx context.Context, name string) (workflow.Wait, error) {
	if gone, err := c.Cluster.DeleteJob(ctx, name); gone || err != nil {
		return done, err
	}
	return in(time.Second, "waiting for the end of pod %s", name), nil
}

func (c *capture) manualDeletePod() string {
	return "kubectl delete pod -n " + c.Namespace + " " + c.get().Pod
}

// readOutput gives the last progress and the report among the lines that a pod printed.
func readOutput(output []byte) (progress string, report *wire.GeneralizeReport) {
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 || text[0] != '{' {
			continue
		}
		line, err := wire.ParseGeneralizeLine(text)
		switch {
		case err != nil: // of others
		case line.Report != nil:
			report = line.Report
		case line.Progress != "":
			progress = line.Progress
		}
	}
	return progress, report
}

// tail gives the end of what a pod printed.
func tail(output []byte) string {
	const most = 400
	text := strings.TrimSpace(string(output))
	if len(text) > most {
		text = "…" + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return strconv.Quote(text)
}

// Refuse makes one error of problems, nil if there are none.
func Refuse(op, on string, problems []fleet.Problem) error {
	var what, wayOut []string
	for _, x := range problems {
		what, wayOut = append(what, x.What), append(wayOut, x.WayOut)
	}
	if len(what) == 0 {
		return nil
	}
	return invalid(op, on, strings.Join(wayOut, "; "), "%s", strings.Join(what, "; "))
}
