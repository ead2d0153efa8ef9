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
	benchEvery = time.Minute     // how often the workbench's node is read while its pod works
	// offFor and silentFor are how long that node may be NotReady while its instance is
	// off, or runs: longer than Kubernetes takes to evict the pods of such a node.
	offFor, silentFor = 5 * time.Minute, 10 * time.Minute
	// podEnds is how long a deleted pod has before it is asked whether a kubelet is there
	// to end it, its grace period of 30 s among it.
	podEnds = 45 * time.Second
)

// podBefore is the pod that generalize runs.
type podBefore struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

// generalize has a pod on the workbench remove the donor's identity from the copy. A
// pod that is lost leaves a copy in an unknown state: the next one gets a new copy.
func (c *capture) generalize(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	s := c.get()
	var was podBefore
	if there, err := p.Saved(&was); err != nil {
		return done, err
	} else if !there {
		node, err := c.Cluster.Node(ctx, s.Bench.Node)
		if err == nil && node.BootID != s.Bench.BootID {
			err = errors.New("its node booted again, with the copy attached")
		}
		if err != nil {
			return done, c.onBench(ctx, err)
		}
		c.set(func(s *state) { s.Pods++ })
		was = podBefore{prototype.JobName(s.Pool, fmt.Sprintf("%s-%d", c.name, c.get().Pods)), s.Bench.Node}
		if err := p.Before(ctx, &was); err != nil {
			return done, err
		}
	}
	if s.Pod != was.Pod {
		c.set(func(s *state) { s.Pod = was.Pod })
		err := p.Save(ctx)
		if err == nil {
			err = c.startPod(ctx, was)
		}
		if err != nil {
			c.set(func(s *state) { s.Pod = "" })
			return done, c.onBench(ctx, err)
		}
		return in(podEvery, "the pod is starting on %s", was.Node), nil
	}
	pod, err := c.Cluster.Job(ctx, was.Pod)
	if err != nil {
		return done, err
	}
	progress, report := readOutput(pod.Output)
	switch {
	case !pod.Exists:
		return done, c.lostPod(ctx, errors.New("the pod is gone"))
	case pod.Done && report != nil && report.Capture == c.name:
		return done, c.judge(p, *report)
	case pod.Done && pod.ExitCode == 64:
		return done, fmt.Errorf("ortet-node generalize does not take its flags: is %s of this version? it printed: %s", c.Image, tail(pod.Output))
	case pod.Done:
		return done, c.lostPod(ctx, fmt.Errorf("the pod ended with code %d and no report (%s); it printed: %s", pod.ExitCode, first(pod.Why, "no reason given"), tail(pod.Output)))
	}
	if err := c.checkBench(ctx, was.Node); err != nil {
		return done, c.lose(err)
	}
	return in(podEvery, "%s", first(pod.Why, progress, "the pod is starting on "+was.Node)), nil
}

// lostPod has a new pod work on a new copy, on another workbench if that is why.
func (c *capture) lostPod(ctx context.Context, err error) error {
	var redo *workflow.Redo
	if lost := c.onBench(ctx, err); errors.As(lost, &redo) || fleet.Is(lost, fleet.KindBlocked) {
		return lost
	}
	return c.redo(err)
}

// checkBench gives an error once the pod cannot be expected to end: its node is not
// Ready for long.
func (c *capture) checkBench(ctx context.Context, name string) error {
	now := c.Now()
	if c.looked.IsZero() {
		c.looked = now
	}
	if now.Sub(c.looked) < benchEvery {
		return nil
	}
	c.looked = now
	node, err := c.Cluster.Node(ctx, name)
	silent := now.Sub(node.ReadySince)
	if err != nil || node.Ready || silent < offFor {
		return nil //nolint:nilerr // the pod is read next, and shows what is wrong
	}
	i, err := c.Cloud.Instance(ctx, c.get().Bench.Instance)
	off := fleet.Is(err, fleet.KindNotFound) || err == nil && isDown(i)
	if !off && silent < silentFor {
		return nil
	}
	return fmt.Errorf("its node is not Ready for %s", silent.Round(time.Second))
}

func (c *capture) startPod(ctx context.Context, was podBefore) error {
	s := c.get()
	public, err := publicKey(s.Key)
	if err != nil {
		return err
	}
	command := []string{
		"ortet-node", "generalize", "--host", "/host", "--lun", strconv.Itoa(int(s.Bench.LUN)),
		"--capture", c.name, "--donor", c.req.Node, "--at", c.begun.UTC().Format(time.RFC3339),
		"--bootstrap", c.req.Bootstrap, "--seal-to", base64.StdEncoding.EncodeToString(public),
	}
	if len(s.Addresses) > 0 {
		command = append(command, "--donor-address", strings.Join(s.Addresses, ","))
	}
	return c.Cluster.StartJob(ctx, cluster.Job{
		Name: was.Pod, Node: was.Node, Image: c.Image, PullSecret: c.PullSecret, Command: append(command, c.secretFlags()...),
		Labels:   map[string]string{"app.kubernetes.io/name": "ortet", "app.kubernetes.io/component": "generalize", "ortet.io/capture": c.name},
		Deadline: time.Hour,
	})
}

// deletePod leaves a pod to its node if that does not answer: its kubelet ends it when
// it is back, and Kubernetes when the node is deleted.
func (c *capture) deletePod(ctx context.Context, p *workflow.Pass) (workflow.Wait, error) {
	var was podBefore
	if there, err := p.Saved(&was); !there || err != nil {
		return done, err
	}
	w, err := c.endPod(ctx, was.Pod)
	if err != nil || w.In == 0 || p.Since() < podEnds {
		return w, err
	}
	node, err := c.Cluster.Node(ctx, was.Node)
	if missing(err) != nil || err == nil && node.Ready {
		return w, err
	}
	if i, err := c.Cloud.Instance(ctx, c.get().Bench.Instance); fleet.Is(err, fleet.KindNotFound) || err == nil && isDown(i) {
		return done, c.Cluster.ForceDeleteJob(ctx, was.Pod)
	}
	p.Note("pod %s is deleted, and ends when node %s, which does not answer, is back or deleted", was.Pod, was.Node)
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

// judge gives an error unless the report says that the copy may become an image.
func (c *capture) judge(p *workflow.Pass, report wire.GeneralizeReport) error {
	const on = "the copy of the disk"
	switch {
	case report.Outcome == wire.SecretsFound:
		var lines []string
		for _, f := range report.Findings {
			if !f.Accepted && !f.Removed {
				detail := ""
				if f.Detail != "" {
					detail = ", " + f.Detail
				}
				lines = append(lines, fmt.Sprintf("%s (%s, %s%s)", f.Path, f.Class, f.Rule, detail))
			}
		}
		return invalid("generalize", on,
			"remove them from the donor; --accept-pool-credentials accepts those of class PoolCredential, --accept-secret PATH one of class OtherSecret, and --remove-secrets deletes the files of these from the copy",
			"it holds secrets that may not be in an image: %s", first(strings.Join(lines, "; "), report.Message))
	case report.Outcome == wire.DiskRefused:
		return invalid("generalize", on, "", "%s", first(report.Message, "the disk was refused"))
	case report.Outcome != wire.Generalized:
		return invalid("generalize", on, "", "%s", first(report.Message, "it failed without a reason"))
	case c.req.Bakes() && len(report.Joins) == 0:
		return invalid("generalize", on, "say --bootstrap keep, or let the disk hold a bootstrap kubeconfig",
			"nothing on it lets a clone join, and --bootstrap baked leaves it nothing else")
	}
	p.Progress(100, "removed %d paths; %s", report.Removed, first(report.OS, "an unknown system"))
	return nil
}
