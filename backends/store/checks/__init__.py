"""What is asked of a store's contents: damage, holes, rollups that are not their base, tokens nobody accounts for."""
