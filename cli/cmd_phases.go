package cli

func (a *app) helpTasks() error { return nil }

func kindWords() ([]string, map[string][]string) { return nil, nil }

func (a *app) knownHosts(string) []string { return nil }
