"""Drawing: figure data in, matplotlib axes out, with the `ax=` convention."""
