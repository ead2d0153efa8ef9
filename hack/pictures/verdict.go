package main

import (
	"cmp"
	"fmt"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// sourceTexts say in two lines what each source of a verdict is.
var sourceTexts = map[assess.Source][2]string{
	assess.FromExtension: {"status of Ortet's", "or any extension"},
	assess.FromConsole:   {"a line on the", "serial console"},
	assess.FromAdmission: {"posted to", "ortet admission"},
	assess.FromNode:      {"the Node is Ready,", "or late"},
	assess.FromPlatform:  {"Azure reports", "a failure"},
	assess.FromLog:       {"the serial log", "shows a failure"},
}

func verdictOrder() (string, error) {
	c := &canvas{}
	c.text(margin, 56, "dim", "start", "A verdict is an outcome, a reason, who can mend it, and what to do")

	const boxes, gap = 132.0, 9.6
	c.text(margin, 88, "head", "start", "1  Who reports: the node's own report goes first")
	sources := assess.Sources()
	for i, s := range sources {
		x := margin + float64(i)*(boxes+gap)
		text, ok := sourceTexts[s]
		if !ok {
			c.fail("the source %s has no text: give it one in sourceTexts", s)
		}
		own, colour := i < 3, "platform"
		if own {
			colour = "node"
		}
		c.box(x, 102, boxes, 62, colour+" faint")
		c.box(x, 102, 4, 62, colour)
		c.text(x+14, 121, "head", "start", string(s))
		c.text(x+14, 139, "dim", "start", text[0])
		c.text(x+14, 154, "dim", "start", text[1])
	}
	c.span(margin, 3*boxes+2*gap, 172, "node", "the node's own: ortet-node wait")
	c.span(margin+3*(boxes+gap), 3*boxes+2*gap, 172, "platform", "from outside: ortet nodes, ortet controller")

	levels := verdict.ByEvidence()
	total, owners, most := 0, map[wire.Owner]int{}, 0
	for _, l := range levels {
		most = max(most, len(l.Reasons))
		for _, r := range l.Reasons {
			owners[r.Owner]++
			total++
		}
	}
	c.text(margin, 226, "head", "start", fmt.Sprintf("2  Which of %d reasons: the evidence nearest to the cause", total))
	const left, scale = 270.0, 300.0
	y := 236.0
	colours := []struct {
		wire.Owner
		colour, who string
	}{
		{wire.OwnerUser, "base", "the configuration"}, {wire.OwnerImage, "node", "the image"}, {wire.OwnerNetwork, "good", "the network"},
		{wire.OwnerPlatform, "platform", "Azure, hardware"}, {"", "off", "no cause is named"},
	}
	for _, l := range levels {
		y += 24
		c.text(margin+22, y, "", "start", l.Meaning)
		x := left
		for _, o := range colours {
			n := 0
			for _, r := range l.Reasons {
				if r.Owner == o.Owner {
					n++
				}
			}
			if n > 0 {
				w := float64(n) / float64(most) * scale
				c.box(x, y-11, w, 14, o.colour)
				x += w + 1
			}
		}
		if len(l.Reasons) == 0 {
			c.text(left, y, "dim", "start", "no reason of its own")
			continue
		}
		c.text(x+7, y, "dim", "start", fmt.Sprintf("%d, as %s", len(l.Reasons), l.Reasons[0].Name))
	}
	c.line(margin+8, 248, margin+8, y-2, "s-platform")
	fmt.Fprintf(c, `<polygon points="%[1]s,%[2]s %[3]s,%[4]s %[5]s,%[4]s" class="platform"/>`+"\n", number(margin+8), number(y+4), number(margin+3.5), number(y-4), number(margin+12.5))
	c.text(margin, y+26, "dim", "start", "From above: the first level with evidence decides. Of equals it is the earliest in the boot. What was got over is no reason.")

	y += 60
	c.text(margin, y, "head", "start", "3  Who can mend it: the reason's owner")
	for i, o := range colours {
		x := margin + float64(i)*(width-2*margin)/float64(len(colours))
		c.box(x, y+13, 14, 30, o.colour)
		c.text(x+22, y+26, "head", "start", fmt.Sprintf("%s %d", cmp.Or(string(o.Owner), "none"), owners[o.Owner]))
		c.text(x+22, y+42, "dim", "start", o.who)
	}
	return c.picture(y+62, "How a verdict is found: why a node did not come up",
		fmt.Sprintf("Six sources of a verdict in their order, the node's own report first. Then %d reasons by how near to the cause their evidence is, from an answer of the cluster itself down to none; the first level decides. "+
			"Owners of reasons: user %d, image %d, network %d, platform %d; none where nothing says why, %d.", total, owners[wire.OwnerUser], owners[wire.OwnerImage], owners[wire.OwnerNetwork], owners[wire.OwnerPlatform], owners[""]))
}

// span names what lies above it.
func (c *canvas) span(x, w, y float64, colour, text string) {
	fmt.Fprintf(c, `<path d="M%s %sv6h%sv-6" class="s-%s"/>`+"\n", number(x), number(y), number(w), colour)
	c.text(x+w/2, y+21, "dim", "middle", text)
}
