package draw

// colours of a box.
type colours struct{ fill, line string }

// look is how a state looks. The order of lightness follows how much a person
// should care: what is done recedes, what failed stands out.
func look(state string) colours {
	switch state {
	case "fresh":
		return colours{"#e6f4ea", "#5b9d72"}
	case "ran":
		return colours{"#bfe5cb", "#2f7d4a"}
	case "run", "stale", "running", "starting", "recording":
		return colours{"#ffe0a3", "#b7791f"}
	case "maybe", "queued", "waiting", "deciding", "looking", "backoff":
		return colours{"#fff6d6", "#c9a94b"}
	case "spared":
		return colours{"#dbe8fb", "#4a78b5"}
	case "unverified":
		return colours{"#f3dcf5", "#8f5a9b"}
	case "failed":
		return colours{"#f8b4b4", "#b42318"}
	case "blocked":
		return colours{"#e3e3e8", "#6b6b76"}
	}
	return colours{"#f7f7f8", "#9a9aa5"}
}

// states is the order of legends and, from the end, what one box for many tasks
// shows: the worst.
func states() []string {
	return []string{"fresh", "ran", "spared", "maybe", "run", "unverified", "blocked", "failed"}
}

// stripe is the colour of a phase.
func stripe(phase int) string {
	all := []string{"#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948"}
	return all[phase%len(all)]
}
