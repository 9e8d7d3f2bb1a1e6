package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/timeoutcenter/toc/client"
)

func clusterCommand(now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Show the nodes and their partitions", Args: noArguments}
	r := remoteFlags(cmd, now)
	return asking(cmd, r, func(ctx context.Context, c *client.Client) (client.Cluster, error) { return c.Cluster(ctx) }, showCluster)
}

// showCluster writes a line for each node; the star is the one that answered.
func showCluster(out io.Writer, c client.Cluster) error {
	w := newTable(out)
	fmt.Fprintln(w, "  NODE\tADDRESS\tPARTITIONS\tRANGES")
	owned := map[int]bool{}
	for _, n := range c.Nodes {
		for _, p := range n.Partitions {
			owned[p] = true
		}
		star := " "
		if n.Name == c.Node {
			star = "*"
		}
		fmt.Fprintf(w, "%s %s\t%s\t%d\t%s\n", star, oneLine(n.Name), oneLine(n.Address), len(n.Partitions), ranges(n.Partitions))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var left []int
	for p := range c.Partitions {
		if !owned[p] {
			left = append(left, p)
		}
	}
	if c.Outdated != "" {
		_, err := fmt.Fprintf(out, "\n! this may be old: %s. Ask another node with --server\n", oneLine(c.Outdated))
		return err
	}
	for _, u := range c.Unworked {
		fmt.Fprintf(out, "\n! %d partitions, %s: %s\n", len(u.Partitions), ranges(u.Partitions), oneLine(u.Reason))
	}
	if len(left) > 0 {
		_, err := fmt.Fprintf(out, "\n%d of %d partitions have no owner now: %s\n", len(left), c.Partitions, ranges(left))
		return err
	}
	if len(c.Unworked) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\nAll %d partitions have an owner.\n", c.Partitions)
	return err
}

// ranges writes 0, 1, 2, 5 as 0-2,5.
func ranges(list []int) string {
	if len(list) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(list))
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, fmt.Sprint(sorted[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
