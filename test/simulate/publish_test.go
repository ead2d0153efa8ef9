package simulate

// publishing are captures that end after the version.
var publishing = []Story{
	{Name: "publish only, then go live, and back", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", PublishOnly: true}, {Do: "capture", PublishOnly: true},
		{Do: "scale out", N: 1}, {Do: "capture", Grow: 1}, {Do: "rollback"}}},
	{Name: "publish only: of a pool whose model others own, and whose upgrades are automatic", Seed: 2,
		Pool: with(func(p *Pool) { p.Owned, p.Mode = true, "Automatic" }), Asks: []Ask{{Do: "capture", PublishOnly: true}}},
	{Name: "publish only: an extension that depends on another, which a capture would delete", Seed: 3,
		Pool: with(func(p *Pool) { p.Extensions = []string{"cse", "billing"} }), Asks: []Ask{{Do: "capture", PublishOnly: true}}},
	{Name: "publish only: the model refers to the definition", Seed: 4, Pool: latest, Asks: []Ask{{Do: "capture", PublishOnly: true}, {Do: "scale out", N: 1}}},
	{Name: "publish only: five versions stay", Seed: 5, Pool: with(func(p *Pool) { p.Versions = 5 }), Asks: []Ask{{Do: "capture", PublishOnly: true}}},
	{Name: "publish only: a canary whose bootstrapping extension is not known", Seed: 6, Pool: usual,
		Asks: []Ask{{Do: "capture", PublishOnly: true, Canary: 1, Exit: 3}}, Cannot: "CanaryNeedsExtension"},
	{Name: "publish only: with a canary", Seed: 6, Pool: with(func(p *Pool) { p.Extensions = []string{"monitor"} }), Asks: []Ask{{Do: "capture", PublishOnly: true, Canary: 1}}},
	{Name: "publish only: with a canary that does not join", Seed: 7, Pool: with(func(p *Pool) { p.Bad, p.Extensions = "no join", []string{"monitor"} }),
		Asks: []Ask{{Do: "capture", PublishOnly: true, Canary: 1, Exit: 1}}, Cannot: "is quarantined"},
	{Name: "publish only: killed after the version was asked for", Seed: 8, Pool: usual, Asks: []Ask{{Do: "capture", PublishOnly: true}}, Happen: at(putVersion, 1, "kill after")},
	{Name: "publish only: after a capture that was killed", Seed: 8, Pool: usual,
		Asks: []Ask{{Do: "capture", Grow: 1, Once: true}, {Do: "capture", PublishOnly: true}}, Happen: at(putVersion, 1, "kill after")},
	{Name: "publish only: killed, and then a capture", Seed: 8, Pool: usual,
		Asks: []Ask{{Do: "capture", PublishOnly: true, Once: true}, {Do: "capture"}, {Do: "capture"}}, Happen: at(putVersion, 1, "kill after")},
	{Name: "publish only: there is nothing to go back to", Seed: 10, Pool: fresh,
		Asks: []Ask{{Do: "capture", PublishOnly: true}, {Do: "rollback", Exit: 3}}, Cannot: "NoPrevious"},
	{Name: "publish only: a rollback passes over it, and stays at the original", Seed: 11, Pool: fresh,
		Asks: []Ask{{Do: "capture", PublishOnly: true}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback"}, {Do: "rollback", Exit: 3}}, Cannot: "NoPrevious"},
	{Name: "publish only: online", Seed: 9, Pool: usual, Asks: []Ask{{Do: "capture", PublishOnly: true, Online: true}}},
}
