package command

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that Completion writes for.
var Shells = []string{"bash", "zsh", "fish"}

// Completion writes a shell's completion of a command, made of its grammar.
func Completion(m *kong.Application, shell string) (string, error) {
	switch shell {
	case "bash":
		return bash(m), nil
	case "zsh":
		return zsh(m), nil
	case "fish":
		return fish(m), nil
	}
	return "", fmt.Errorf("no completion for the shell %q; there is %s", shell, strings.Join(Shells, ", "))
}

// table writes the shell functions that bash and zsh share: NAME_at finds the verb in the words given so far, NAME_words lists what may come at a verb, and
// NAME_values what an option there may be set to.
func table(m *kong.Application) string {
	f := "_" + m.Name
	var known, words, vals, takes strings.Builder
	for _, v := range verbs(m) {
		if v.path != "" {
			fmt.Fprintf(&known, "\t\t\t\"%s\") at=\"$next\" ;;\n", v.path)
		}
		var offer []string
		for _, c := range v.Children {
			if !c.Hidden {
				offer = append(offer, c.Name)
			}
		}
		for _, fl := range v.flags() {
			offer = append(offer, "--"+fl.Name)
			if list := values(fl); len(list) > 0 {
				fmt.Fprintf(&vals, "\t\"%s --%s\") echo '%s' ;;\n", v.path, fl.Name, strings.Join(list, " "))
			}
			if takesValue(fl) {
				names := fmt.Sprintf("\"%s --%s\"", v.path, fl.Name)
				if fl.Short != 0 {
					names += fmt.Sprintf("|\"%s -%c\"", v.path, fl.Short)
				}
				fmt.Fprintf(&takes, "\t%s) return 0 ;;\n", names)
			}
		}
		fmt.Fprintf(&words, "\t\"%s\") echo '%s' ;;\n", v.path, strings.Join(offer, " "))
	}
	return fmt.Sprintf(`%[1]s_takes() {
	case "$1" in
%[5]s	esac
	return 1
}
%[1]s_at() {
	local at='' next word skip=''
	for word in "$@"; do
		if [ -n "$skip" ]; then skip=''; continue; fi
		case "$word" in
		-*) if %[1]s_takes "$at $word"; then skip=1; fi; continue ;;
		esac
		next="${at:+$at }$word"
		case "$next" in
%[2]s		esac
	done
	echo "$at"
}
%[1]s_words() {
	case "$1" in
%[3]s	esac
}
%[1]s_values() {
	case "$1" in
%[4]s	*) return 1 ;;
	esac
}
`, f, known.String(), words.String(), vals.String(), takes.String())
}

func bash(m *kong.Application) string {
	return fmt.Sprintf(`# bash completion of %[1]s: source <(%[1]s completion bash)
%[2]s_%[1]s() {
	local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at list
	at="$(_%[1]s_at "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
	if list="$(_%[1]s_values "$at $prev")"; then
		COMPREPLY=($(compgen -W "$list" -- "$cur"))
	elif _%[1]s_takes "$at $prev"; then
		COMPREPLY=($(compgen -f -- "$cur"))
	else
		COMPREPLY=($(compgen -W "$(_%[1]s_words "$at")" -- "$cur"))
		[ ${#COMPREPLY[@]} -eq 0 ] && COMPREPLY=($(compgen -f -- "$cur"))
	fi
}
complete -o filenames -F _%[1]s %[1]s
`, m.Name, table(m))
}

func zsh(m *kong.Application) string {
	return fmt.Sprintf(`#compdef %[1]s
# zsh completion of %[1]s: %[1]s completion zsh > "${fpath[1]}/_%[1]s"
%[2]s_%[1]s() {
	local at list prev="${words[CURRENT-1]}"
	at="$(_%[1]s_at "${(@)words[2,CURRENT-1]}")"
	if list="$(_%[1]s_values "$at $prev")"; then
		compadd -- ${=list}
	elif _%[1]s_takes "$at $prev"; then
		_files
	else
		compadd -- ${=$(_%[1]s_words "$at")}
		_files
	fi
}
if [ "$funcstack[1]" = "_%[1]s" ]; then _%[1]s "$@"; elif whence compdef >/dev/null; then compdef _%[1]s %[1]s; fi
`, m.Name, table(m))
}

func fish(m *kong.Application) string {
	var b strings.Builder
	var paths []string
	for _, v := range verbs(m) {
		if v.path != "" {
			paths = append(paths, fishQuote(v.path))
		}
	}
	fmt.Fprintf(&b, `# fish completion of %[1]s: %[1]s completion fish > ~/.config/fish/completions/%[1]s.fish
set -g __%[1]s_verbs %[2]s
function __%[1]s_at
	set -l at ''
	for word in (commandline -opc)[2..]
		string match -q -- '-*' $word; and continue
		set -l next (string trim -- "$at $word")
		contains -- $next $__%[1]s_verbs; and set at $next
	end
	test "$at" = "$argv[1]"
end
`, m.Name, strings.Join(paths, " "))
	for _, v := range verbs(m) {
		at := fmt.Sprintf("complete -c %s -n '__%s_at \"%s\"'", m.Name, m.Name, v.path)
		for _, c := range v.Children {
			if !c.Hidden {
				fmt.Fprintf(&b, "%s -f -a %s -d %s\n", at, c.Name, fishQuote(c.Help))
			}
		}
		for _, f := range v.flags() {
			fmt.Fprintf(&b, "%s -l %s", at, f.Name)
			if f.Short != 0 {
				fmt.Fprintf(&b, " -s %c", f.Short)
			}
			if list := values(f); len(list) > 0 {
				fmt.Fprintf(&b, " -x -a %s", fishQuote(strings.Join(list, " ")))
			} else if takesValue(f) {
				b.WriteString(" -r")
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuote(f.Help))
		}
	}
	return b.String()
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
